"""Tables of the composition root: heartbeats of the portal's processes, and the lease of the sweeps."""

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


class SweepLease(models.Model):
    """Which of several sweeps makes the passes: ``portal.operations.sweep_lease``. One row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    # Machine or pod, and process id; empty: free.
    holder = models.CharField(max_length=280, blank=True)
    # Incremented by every renewal. A lease that stays the same for a while is free.
    revision = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_sweep_lease")]
