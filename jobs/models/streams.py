"""Tables of the streams: heads, sources, metric names, and blocks of lines and points."""

from __future__ import annotations

from django.db import models


class StreamKind(models.TextChoices):
    LOGS = "logs"
    METRICS = "metrics"


class StreamHead(models.Model):
    """Last sequence number assigned in one stream of one job. The row is locked while a batch is appended."""

    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=16, choices=StreamKind.choices)
    last = models.PositiveBigIntegerField(default=0)
    # The stream is complete: the job has ended and its agents have flushed.
    closed = models.BooleanField(default=False)
    # Entries up to here are in merged blocks. ``unsealed`` counts the blocks after it; a sweep selects by it.
    sealed = models.PositiveBigIntegerField(default=0)
    unsealed = models.PositiveIntegerField(default=0)

    class Meta:
        app_label = "jobs"
        constraints = [models.UniqueConstraint(fields=["job", "kind"], name="one_head_per_stream")]
        indexes = [models.Index(fields=["closed", "unsealed"])]


class Source(models.Model):
    """Last entry that was appended of one replica's own numbering; it makes repeated batches idempotent."""

    attempt = models.ForeignKey("jobs.Attempt", on_delete=models.CASCADE, related_name="+")
    replica = models.CharField(max_length=63)
    kind = models.CharField(max_length=16)
    last = models.PositiveBigIntegerField(default=0)

    class Meta:
        app_label = "jobs"
        constraints = [models.UniqueConstraint(fields=["attempt", "replica", "kind"], name="one_source_per_replica")]


class MetricNames(models.Model):
    """Names of a job's metrics in order of arrival. ``jobs.streams.metric_names`` bounds their number."""

    job = models.OneToOneField("jobs.Job", primary_key=True, on_delete=models.CASCADE, related_name="+")
    names = models.JSONField(default=list)
    # A name beyond the limit was left out, and that was reported.
    refused = models.BooleanField(default=False)

    class Meta:
        app_label = "jobs"


class FollowedLog(models.Model):
    """Position of the portal in the output of a replica without an agent: ``jobs.log_follower.ingest.Taken``."""

    attempt = models.ForeignKey("jobs.Attempt", on_delete=models.CASCADE, related_name="+")
    replica = models.CharField(max_length=63)
    # Incremented with every piece that is taken; a writer that has read an older revision is refused.
    revision = models.PositiveBigIntegerField(default=0)
    taken = models.JSONField(default=dict)

    class Meta:
        app_label = "jobs"
        constraints = [models.UniqueConstraint(fields=["attempt", "replica"], name="one_followed_log_per_replica")]


class Block(models.Model):
    """Consecutive entries of a stream, packed. ``lo`` and ``hi`` are the first and last sequence number in it.

    The payload holds the writer of each entry: a merged block has entries of many replicas and attempts.
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
