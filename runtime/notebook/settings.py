"""Settings of the server, from the environment of its process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Where the server listens, and what it serves."""

    # Path of all its addresses, with a slash at both ends.
    base_url: str
    # Root of the contents, and working directory of kernels and terminals.
    home: Path
    name: str
    # Directory for the socket and for those of kernels; its name is short.
    temporary: Path

    @property
    def socket(self) -> Path:
        return self.temporary / "notebook.socket"


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings. Raises KeyError if one is missing."""
    base_url = environment["REGATTA_NOTEBOOK_BASE_URL"]
    return Settings(
        base_url=f"/{base_url.strip('/')}/",
        home=Path(environment["REGATTA_NOTEBOOK_HOME"]),
        name=environment.get("REGATTA_NOTEBOOK_NAME", ""),
        temporary=Path(environment.get("TMPDIR", "/tmp")),  # noqa: S108
    )
