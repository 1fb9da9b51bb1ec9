"""The portal from outside: a Python client and the ``regatta`` command. Talks HTTP only and imports nothing of ours.

from client import Client

with Client("http://127.0.0.1:8000", token="rgt_...") as portal:
    job = portal.submit({"name": "digits", ...})
    for line in portal.follow(job.id):
        print(line.replica, line.text)
    portal.download(job.id, "model.npz", Path("model.npz"))
"""

from client.api import Client
from client.errors import PortalError
from client.models import Artifact, Job, Line, Page, Replica, Series

__all__ = ["Artifact", "Client", "Job", "Line", "Page", "PortalError", "Replica", "Series"]
