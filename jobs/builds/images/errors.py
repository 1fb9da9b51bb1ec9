"""Errors of image builds."""

from __future__ import annotations


class BuildFailed(Exception):
    """Raised when an image cannot be built. ``why``: a message for the job's owner, with what to do next."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
