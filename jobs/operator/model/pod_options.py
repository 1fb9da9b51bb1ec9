"""Options of the controller for the pods that it creates. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PodOptions:
    """Options of the controller for pods.

    ``init_image``: image of the init container that waits until the DNS resolves the names of a role's pods; empty: no
    init container. ``volcano``: whether Volcano schedules the pods.
    """

    init_image: str = ""
    volcano: bool = False
