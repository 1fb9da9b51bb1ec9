"""Models of quotas: limits, claims that wait, reservations and their stretches, hours, and stored bytes.

Amounts: cpu in cores, memory and storage in bytes, gpu and jobs as counts.
"""

from __future__ import annotations

from django.db import models

from portal.common.message_field import MessageField
from rbac.models import Namespace, User


class Limit(models.Model):
    """The limit of one resource in one namespace. A missing row means the default of the settings."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="limits")
    resource = models.CharField(max_length=32)
    # None: the default of the settings, if only ``borrow`` was set.
    amount = models.FloatField(null=True)
    # The amount that it may hold beyond the limit while others do not need it; recalled once they do.
    borrow = models.FloatField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "resource"], name="one_limit_per_resource")]


class Capacity(models.Model):
    """The platform's capacity of a resource for all namespaces together. A missing row means unlimited."""

    resource = models.CharField(max_length=32, unique=True)
    amount = models.FloatField()


class _Ask(models.Model):
    """One attempt of one job. This app has no access to jobs, only to their ids, names and owners."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="%(class)ss")
    job = models.UUIDField()
    attempt = models.PositiveIntegerField()
    label = models.CharField(max_length=63, blank=True)
    owner = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    amounts = models.JSONField()
    priority = models.CharField(max_length=16, default="normal")

    class Meta:
        abstract = True


class Claim(_Ask):
    """An attempt that waits. The row is deleted once the claim is granted or released."""

    since = models.DateTimeField()
    # ``since`` minus the head start of its priority: the order of the queue among claims that are not overdue.
    turn = models.DateTimeField()
    # The longest time that it may hold the amounts, in seconds.
    length = models.FloatField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt"], name="one_claim_per_attempt")]
        indexes = [models.Index(fields=["namespace", "turn"])]


class Reservation(_Ask):
    """The amounts that one attempt of one job holds, or held. There is never a second one per (job, attempt)."""

    created = models.DateTimeField()
    # Its latest end, by its timeout; empty if unknown.
    until = models.DateTimeField(null=True, blank=True)
    released = models.DateTimeField(null=True, blank=True)
    # When its borrowed amounts were recalled, and the message for its owner.
    recalled = models.DateTimeField(null=True, blank=True)
    recalled_why = MessageField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt"], name="one_reservation_per_attempt")]
        indexes = [
            models.Index(fields=["namespace", "released"]),
            models.Index(fields=["released"], condition=models.Q(released=None), name="held_reservations"),
        ]


class Stretch(models.Model):
    """A period in which a reservation held the same amounts. A resize ends one and begins the next."""

    reservation = models.ForeignKey(Reservation, on_delete=models.CASCADE, related_name="stretches")
    amounts = models.JSONField()
    begun = models.DateTimeField()
    ended = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["reservation"], condition=models.Q(ended=None), name="one_open_stretch_per_reservation"
            )
        ]
        indexes = [models.Index(fields=["ended", "begun"])]


class DailyUse(models.Model):
    """The hours of a namespace on one day (UTC), of stretches that have ended. Admission reads one row per day."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="+")
    day = models.DateField()
    cpu_hours = models.FloatField(default=0)
    gpu_hours = models.FloatField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "day"], name="one_sum_of_hours_per_day")]


class Kind(models.TextChoices):
    """The kind of a thing that uses storage."""

    ARTIFACTS = "artifacts"
    CHECKPOINTS = "checkpoints"
    STREAMS = "streams"
    CODE = "code"
    DATASETS = "datasets"
    HOMES = "homes"


class Kept(models.Model):
    """The bytes of one kind that one thing of a namespace (a job, a snapshot of code, a dataset) uses.

    This app has only the id and the name of the thing.
    """

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    subject = models.CharField(max_length=100)
    label = models.CharField(max_length=100, blank=True)
    size = models.BigIntegerField(default=0)
    changed = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "kind", "subject"], name="one_row_per_kept_thing")]
        indexes = [models.Index(fields=["namespace", "-size"]), models.Index(fields=["kind", "changed"])]


class Stored(models.Model):
    """The sum of a namespace's ``Kept`` rows of one kind, changed in the same transaction as those rows."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="stored")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    size = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "kind"], name="one_sum_per_kind")]


class RequestState(models.TextChoices):
    """The state of a request for more quota."""

    OPEN = "open"
    APPROVED = "approved"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


class QuotaRequest(models.Model):
    """A member's request for other limits of a namespace, and the answer. At most one per namespace is open."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="quota_requests")
    asker = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    asked = models.DateTimeField()
    limits = models.JSONField()
    reason = models.CharField(max_length=500)
    state = models.CharField(max_length=16, choices=RequestState.choices, default=RequestState.OPEN)
    answered_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    answered = models.DateTimeField(null=True, blank=True)
    answer = models.CharField(max_length=500, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["namespace"], condition=models.Q(state="open"), name="one_open_request_per_namespace"
            )
        ]
        indexes = [models.Index(fields=["state", "asked"])]
