"""What keeps an image from being made."""

from __future__ import annotations


class BuildFailed(Exception):
    """``why`` is a message for the person whose job it is, with what to do next."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
