"""Tables of the streams: heads, blocks of lines and points, roll-ups."""

from __future__ import annotations

from django.db import models


class StreamKind(models.TextChoices):
    LOGS = "logs"
    METRICS = "metrics"


class StreamHead(models.Model):
    """The last sequence number given in one stream of one job. Locked while a batch is taken in."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16, choices=StreamKind.choices)
    last = models.PositiveBigIntegerField(default=0)
    # Set when no more will come: the job has ended and its agents have flushed.
    closed = models.BooleanField(default=False)
    # Entries up to here lie in merged blocks; ``unsealed`` counts the blocks after it, so that a sweep finds work at
    # once.
    sealed = models.PositiveBigIntegerField(default=0)
    unsealed = models.PositiveIntegerField(default=0)

    class Meta:
        app_label = "jobs"
        constraints = [models.UniqueConstraint(fields=["job", "kind"], name="one_head_per_stream")]
        indexes = [models.Index(fields=["closed", "unsealed"])]


class Source(models.Model):
    """How far one replica's own numbering of one kind has been taken in: what makes a repeated batch harmless."""

    attempt = models.ForeignKey("jobs.Attempt", on_delete=models.CASCADE, related_name="+")
    replica = models.CharField(max_length=63)
    kind = models.CharField(max_length=16)
    last = models.PositiveBigIntegerField(default=0)

    class Meta:
        app_label = "jobs"
        constraints = [models.UniqueConstraint(fields=["attempt", "replica", "kind"], name="one_source_per_replica")]


class MetricNames(models.Model):
    """The names of a job's metrics, in the order in which they came: ``jobs.streams.metric_names`` bounds them."""

    job = models.OneToOneField("jobs.Job", primary_key=True, on_delete=models.CASCADE, related_name="+")
    names = models.JSONField(default=list)
    # A further name was left out, and that was reported.
    refused = models.BooleanField(default=False)

    class Meta:
        app_label = "jobs"


class FollowedLog(models.Model):
    """How far the portal has followed what a replica without an agent prints: ``jobs.log_follower.ingest.Taken``."""

    attempt = models.ForeignKey("jobs.Attempt", on_delete=models.CASCADE, related_name="+")
    replica = models.CharField(max_length=63)
    # Raised with every piece that is taken; who has read an older one is refused.
    revision = models.PositiveBigIntegerField(default=0)
    taken = models.JSONField(default=dict)

    class Meta:
        app_label = "jobs"
        constraints = [models.UniqueConstraint(fields=["attempt", "replica"], name="one_followed_log_per_replica")]


class Block(models.Model):
    """Consecutive entries of a stream, packed. ``lo`` and ``hi`` are the first and last sequence number in it.

    Who wrote each entry stands in the payload: a merged block holds entries of many replicas and attempts.
    """

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16, choices=StreamKind.choices)
    lo = models.PositiveBigIntegerField()
    hi = models.PositiveBigIntegerField()
    payload = models.BinaryField()

    class Meta:
        app_label = "jobs"
        constraints = [models.UniqueConstraint(fields=["job", "kind", "lo"], name="one_block_per_lo")]
        indexes = [models.Index(fields=["job", "kind", "hi"])]
