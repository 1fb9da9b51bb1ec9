"""Packages of notebooks: JupyterLab and what the client needs, and the client itself as files of the job."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from django.conf import settings
from packaging.requirements import Requirement

from runtime.contract import NOTEBOOK_PACKAGES

# Beside the project's root: also the development requirements include it.
_FILE = "requirements-notebook.txt"
# Dependencies of the client with its part for notebooks, as client/pyproject.toml has them.
CLIENT = (
    *("click>=8.1", "httpx>=0.27", "pyyaml>=6.0", "rich>=13.7", "websockets>=13"),
    *("anywidget>=0.9", "ipykernel>=6", "ipywidgets>=8", "matplotlib>=3.8", "numpy>=1.26", "pandas>=2", "plotly>=6"),
)


@cache
def requirements() -> tuple[str, ...]:
    """Return the requirements of every notebook. Raises OSError."""
    lines = (Path(settings.BASE_DIR) / _FILE).read_text(encoding="utf-8").splitlines()
    found = (line.partition("#")[0].strip() for line in lines)
    pinned = [line for line in found if line and not line.startswith("-")]
    names = {Requirement(line).name for line in pinned}
    return (*pinned, *(line for line in CLIENT if Requirement(line).name not in names))


@cache
def client_files() -> Mapping[str, str]:
    """Return the files of the client by their path in the job's code. Raises OSError."""
    package = Path(settings.BASE_DIR) / "client" / "regatta"
    return {
        f"{NOTEBOOK_PACKAGES}/regatta/{path.relative_to(package)}": path.read_text(encoding="utf-8")
        for path in sorted(package.rglob("*.py"))
    }
