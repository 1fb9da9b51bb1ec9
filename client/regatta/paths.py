"""Paths of the portal's API."""

from __future__ import annotations

from urllib.parse import quote


def segment(text: str) -> str:
    """Encode one segment of a path: a text that contains ``/`` stays one segment."""
    return quote(text, safe="")
