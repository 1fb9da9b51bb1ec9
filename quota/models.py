"""What a namespace may use (limits) and what its attempts hold now (reservations). Amounts: cpu in cores, memory and
storage in bytes, gpu and jobs as counts."""

from __future__ import annotations

from django.db import models

from rbac.models import Namespace


class Limit(models.Model):
    """One resource's limit in one namespace. A missing row means the default of the settings."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="limits")
    resource = models.CharField(max_length=32)
    amount = models.FloatField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "resource"], name="one_limit_per_resource")]


class Reservation(models.Model):
    """What one attempt of one job holds. At most one active reservation per (job, attempt)."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="reservations")
    # The job's id; this room knows no jobs.
    job = models.UUIDField()
    attempt = models.PositiveIntegerField()
    amounts = models.JSONField()
    created = models.DateTimeField(auto_now_add=True)
    released = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt"], name="one_reservation_per_attempt")]
        indexes = [models.Index(fields=["namespace", "released"])]
