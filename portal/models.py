"""Tables of the composition root: heartbeats of the portal's processes."""

from __future__ import annotations

from django.db import models


class ProcessHeartbeat(models.Model):
    """Last report of one process of the portal: ``portal.system.heartbeats``. A process that ends in order removes its
    row."""

    kind = models.CharField(max_length=16)
    # Name of the machine or the pod.
    host = models.CharField(max_length=253)
    pid = models.PositiveIntegerField()
    started = models.DateTimeField()
    seen = models.DateTimeField(db_index=True)
    version = models.CharField(max_length=32)
    # Duration and end of the last pass, of a process that makes passes.
    pass_seconds = models.FloatField(null=True, blank=True)
    pass_at = models.DateTimeField(null=True, blank=True)
    # The last error in its log, without secrets and without the text of the exception.
    last_error = models.CharField(max_length=300, blank=True)
    last_error_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "host", "pid", "started"], name="one_row_per_process")]
