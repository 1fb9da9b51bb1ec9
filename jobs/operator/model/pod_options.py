"""Options of the controller for the pods that it makes. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PodOptions:
    """What the controller was started with. ``init_image``: image of the container that waits until the names of a
    role's pods are known to the DNS; without one nothing waits for it. ``volcano``: Volcano places pods."""

    init_image: str = ""
    volcano: bool = False
