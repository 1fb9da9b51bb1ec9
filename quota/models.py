"""What a namespace may use (limits), what waits (claims), what its attempts hold and held (reservations and their
stretches), and what it keeps in the storage. Amounts: cpu in cores, memory and storage in bytes, gpu and jobs as
counts."""

from __future__ import annotations

from django.db import models

from rbac.models import Namespace, User


class Limit(models.Model):
    """One resource's limit in one namespace. A missing row means the default of the settings."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="limits")
    resource = models.CharField(max_length=32)
    # None: the default, where only ``borrow`` was set.
    amount = models.FloatField(null=True)
    # How much more it may hold of what others do not need now; it has to give that back when they do.
    borrow = models.FloatField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "resource"], name="one_limit_per_resource")]


class Capacity(models.Model):
    """How much of a resource the platform has for all namespaces together. A missing row means no end."""

    resource = models.CharField(max_length=32, unique=True)
    amount = models.FloatField()


class _Ask(models.Model):
    """One attempt of one job, as this room knows it: it knows no jobs, only their ids, names and owners."""

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
    """An attempt that waits. Gone once it is granted or given up."""

    since = models.DateTimeField()
    # ``since`` less the head start of its priority: the order of the queue, as far as nobody is overdue.
    turn = models.DateTimeField()
    # How long it may hold the amounts at most, in seconds.
    length = models.FloatField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt"], name="one_claim_per_attempt")]
        indexes = [models.Index(fields=["namespace", "turn"])]


class Reservation(_Ask):
    """What one attempt of one job holds, or held. At most one per (job, attempt) for ever."""

    created = models.DateTimeField()
    # When its timeout will have ended it at the latest; empty where that is not known.
    until = models.DateTimeField(null=True, blank=True)
    released = models.DateTimeField(null=True, blank=True)
    # It has been asked to give back what was lent, with the message that its owner reads.
    recalled = models.DateTimeField(null=True, blank=True)
    recalled_why = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt"], name="one_reservation_per_attempt")]
        indexes = [
            models.Index(fields=["namespace", "released"]),
            models.Index(fields=["released"], condition=models.Q(released=None), name="held_reservations"),
        ]


class Stretch(models.Model):
    """A time in which a reservation held the same amounts: a resize ends one and begins the next."""

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
    """The hours of a namespace on one day (UTC), of stretches that have ended: admission reads a row a day."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="+")
    day = models.DateField()
    cpu_hours = models.FloatField(default=0)
    gpu_hours = models.FloatField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "day"], name="one_sum_of_hours_per_day")]


class Kind(models.TextChoices):
    """What bytes are kept for."""

    ARTIFACTS = "artifacts"
    CHECKPOINTS = "checkpoints"
    STREAMS = "streams"
    CODE = "code"
    DATASETS = "datasets"


class Kept(models.Model):
    """The bytes that one thing of a namespace (a job, a snapshot of code, a dataset) keeps of one kind. This room
    knows its id and its name alone."""

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
    """The sum of a namespace's ``Kept`` of one kind; changed in the same transaction, so that nobody has to add up."""

    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="stored")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    size = models.BigIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "kind"], name="one_sum_per_kind")]


class RequestState(models.TextChoices):
    """What became of a wish for more quota."""

    OPEN = "open"
    APPROVED = "approved"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


class QuotaRequest(models.Model):
    """Somebody's wish for other limits of a namespace, and the answer. At most one open one a namespace."""

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
