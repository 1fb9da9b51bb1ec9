"""Client of a Regatta portal: a Python package and the ``regatta`` command. Uses HTTP only.

from regatta import Client

with Client() as portal:                       # configured by `regatta login`, or Client(server, token)
    job = portal.jobs.submit({"name": "digits", ...})
    job.on("cost", lambda point: print(point.step, point.value))
    for line in job.logs(follow=True):
        print(line.replica, line.text)
    job.wait().download("model.npz", "model.npz")

In a notebook, ``%load_ext regatta`` adds the magic ``%%train``; ``regatta.submit`` runs a function as a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regatta.api import Client
from regatta.errors import PortalError
from regatta.job import Job
from regatta.models import Artifact, Dataset, Line, Page, Point, Replica, Version
from regatta.series import Series
from regatta.terminal.watch import Watch
from regatta.version import VERSION as __version__

if TYPE_CHECKING:
    from regatta.notebook.errors import CaptureError
    from regatta.notebook.submission import code_of, submit
    from regatta.watching.errors import JobFailed
    from regatta.watching.iterations import Iteration

# Loaded on first use: they analyse code, which most programs and the command never do.
_LATER = {
    "CaptureError": "regatta.notebook.errors",
    "Iteration": "regatta.watching.iterations",
    "JobFailed": "regatta.watching.errors",
    "code_of": "regatta.notebook.submission",
    "submit": "regatta.notebook.submission",
}

__all__ = [
    "Artifact",
    "CaptureError",
    "Client",
    "Dataset",
    "Iteration",
    "Job",
    "JobFailed",
    "Line",
    "Page",
    "Point",
    "PortalError",
    "Replica",
    "Series",
    "Version",
    "Watch",
    "__version__",
    "code_of",
    "submit",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LATER[name]), name)


def load_ipython_extension(shell: Any) -> None:
    """Add the magic ``%%train`` to a notebook; called by ``%load_ext regatta``."""
    from regatta.notebook import magic

    magic.load(shell)
