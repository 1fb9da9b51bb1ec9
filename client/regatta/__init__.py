"""Client of a Regatta portal: a Python package and the ``regatta`` command. Uses HTTP only.

from regatta import Client

with Client() as portal:                       # configured by `regatta login`, or Client(server, token)
    job = portal.jobs.submit({"name": "digits", ...})
    job.on("cost", lambda point: print(point.step, point.value))
    for line in job.logs(follow=True):
        print(line.replica, line.text)
    job.wait().download("model.npz", "model.npz")
"""

from regatta.api import Client
from regatta.errors import PortalError
from regatta.job import Job
from regatta.models import Artifact, Dataset, Line, Page, Point, Replica, Version
from regatta.series import Series
from regatta.terminal.watch import Watch
from regatta.version import VERSION as __version__

__all__ = [
    "Artifact",
    "Client",
    "Dataset",
    "Job",
    "Line",
    "Page",
    "Point",
    "PortalError",
    "Replica",
    "Series",
    "Version",
    "Watch",
    "__version__",
]
