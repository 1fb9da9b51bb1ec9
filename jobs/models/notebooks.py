"""Notebooks."""

from __future__ import annotations

import uuid

from django.db import models

from rbac.models import ApiToken, Namespace, User


def base_url(namespace: str, notebook_id: uuid.UUID) -> str:
    """Return the path below which a notebook serves Jupyter, with a slash at both ends."""
    return f"/n/{namespace}/notebooks/{notebook_id}/"


class Notebook(models.Model):
    """A notebook of a namespace. It outlasts its jobs: each start submits a new one with the framework ``notebook``."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, related_name="notebooks")
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="notebooks")
    name = models.CharField(max_length=63)
    # Resources of its job: cores, bytes, devices.
    cpu = models.FloatField()
    memory = models.PositiveBigIntegerField()
    gpu = models.PositiveIntegerField(default=0)
    # Packages that pip installs in addition to JupyterLab, one requirement in each element.
    requirements = models.JSONField(default=list, blank=True)
    # Seconds without use after which it is stopped; 0: never.
    idle_seconds = models.PositiveIntegerField()
    # What its first start puts into its directory (jobs.notebooks.sources), and when that start was requested.
    source = models.JSONField(default=dict, blank=True)
    created = models.DateTimeField()
    # When somebody last opened or used it, a cell ran or a terminal was busy, as far as the platform knows.
    last_used = models.DateTimeField()
    # The last activity that Jupyter has reported since the present start. The time until it is stopped counts from it.
    active = models.DateTimeField(null=True, blank=True)
    # The present or the last job. Null before the first start, and after that job was removed.
    job = models.ForeignKey("jobs.Job", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    # The token of the client inside, while it runs.
    token = models.ForeignKey(ApiToken, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    # Whether a cell ran or a terminal was busy at the last look, and when that look was.
    busy = models.BooleanField(default=False)
    looked = models.DateTimeField(null=True, blank=True)
    # Set by the client; a second POST with the same key returns the first notebook.
    idempotency_key = models.CharField(max_length=100, null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["namespace", "name"], name="one_notebook_per_name"),
            models.UniqueConstraint(
                fields=["namespace", "owner", "idempotency_key"], name="one_notebook_per_idempotency_key"
            ),
        ]
