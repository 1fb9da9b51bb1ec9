"""Jobs, their attempts and replicas, and related tables.

``Job.state`` has one writer: ``jobs.reconcile.reconciler.apply``.
"""

from __future__ import annotations

import uuid

from django.db import models

from datasets.models import Version
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.models import streams as _stream_models  # noqa: F401  registers the tables of the streams with this app
from jobs.models.notebook_sessions import NotebookSession
from jobs.models.notebooks import Notebook
from jobs.models.terminals import TerminalRecording
from portal.common.message_field import MessageField
from rbac.models import Namespace, User

__all__ = [
    "Artifact",
    "Attempt",
    "CodeSnapshot",
    "Elastic",
    "ElasticMode",
    "FailedTask",
    "Job",
    "JobEvent",
    "JobState",
    "Notebook",
    "NotebookSession",
    "Replica",
    "ReplicaState",
    "Retention",
    "Scaling",
    "TerminalRecording",
    "Transition",
]


class CodeSnapshot(models.Model):
    """Files of a submission, identified by the hash of their content. Stored as one archive."""

    digest = models.CharField(max_length=64, primary_key=True)
    size = models.PositiveBigIntegerField()
    created = models.DateTimeField(auto_now_add=True)


class Job(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, related_name="jobs")
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="jobs")
    name = models.CharField(max_length=63)
    # The version of a namespace's dataset that it trains on, fixed at submission. Null for shipped datasets, and after
    # the version is deleted for good.
    dataset_version = models.ForeignKey(Version, null=True, blank=True, on_delete=models.SET_NULL, related_name="jobs")
    # The resolved specification (jobs.spec.model.JobSpec.to_json), without the files; it never changes.
    spec = models.JSONField()
    snapshot = models.ForeignKey(CodeSnapshot, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=16, choices=[(state, state) for state in JobState], default=JobState.QUEUED)
    # jobs.lifecycle.reasons.Reason while stopping and after the end, otherwise empty.
    reason = models.CharField(max_length=32, blank=True)
    # The message that is shown beside the state.
    why = MessageField(blank=True)
    # The number of the present attempt, or of the last one.
    attempt = models.PositiveIntegerField(default=1)
    # Number of retried attempts by reason, since a user submitted or retried the job.
    requeues = models.JSONField(default=dict)
    # Incremented by every write of the reconciler, and by requests of users that it must not overlook; its
    # compare-and-set checks it.
    revision = models.PositiveBigIntegerField(default=0)
    created = models.DateTimeField()
    # When the state last changed, when training began for the first time, and when all ended.
    changed = models.DateTimeField()
    started = models.DateTimeField(null=True, blank=True)
    finished = models.DateTimeField(null=True, blank=True)
    # Desired number of trainers, last set by a user or the controller of elastic jobs; null: as in the specification.
    trainers = models.PositiveIntegerField(null=True, blank=True)
    # Desired number of parameter servers, from the next attempt on.
    pservers = models.PositiveIntegerField(null=True, blank=True)
    # Whether the platform may change the number of trainers, if a user has set it; null: as in the specification.
    elastic = models.BooleanField(null=True, blank=True)
    # jobs.lifecycle.fault_injection.Rehearsal while faults are injected.
    rehearsal = models.JSONField(null=True, blank=True)
    # Time of the request to cancel, which the reconciler reads.
    cancel_requested = models.DateTimeField(null=True, blank=True)
    cancelled_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    # The W3C trace context of the request that submitted or last retried it, if its trace is recorded.
    traceparent = models.CharField(max_length=55, null=True, blank=True)
    # Set by the client; a second POST with the same key returns the first job.
    idempotency_key = models.CharField(max_length=100, null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=[str(state) for state in JobState]), name="known_state"
            ),
            models.UniqueConstraint(
                fields=["namespace", "owner", "idempotency_key"], name="one_job_per_idempotency_key"
            ),
        ]
        indexes = [
            models.Index(fields=["namespace", "-created"]),
            models.Index(fields=["state", "created"]),
            models.Index(fields=["finished"]),
        ]


class Attempt(models.Model):
    """One attempt of a job."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    # SHA-256 of the token of its agents.
    token_digest = models.CharField(max_length=64)
    # When it was admitted; the job's timeout counts from here.
    created = models.DateTimeField()
    finished = models.DateTimeField(null=True, blank=True)
    # jobs.lifecycle.progress.reported.Reported: stalls and stragglers that are on the timeline. Null: none yet.
    progress = models.JSONField(null=True, blank=True)
    # jobs.lifecycle.pauses.Pause; null: it was never paused.
    pause = models.JSONField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "number"], name="one_attempt_per_number")]


class Replica(models.Model):
    """One process of an attempt, as last reported or observed."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="replicas")
    name = models.CharField(max_length=63)
    role = models.CharField(max_length=16)
    index = models.PositiveIntegerField()
    state = models.CharField(
        max_length=16, choices=[(state, state) for state in ReplicaState], default=ReplicaState.WAITING
    )
    why = MessageField(blank=True)
    code = models.IntegerField(null=True, blank=True)
    signal = models.IntegerField(null=True, blank=True)
    out_of_memory = models.BooleanField(default=False)
    heartbeat = models.DateTimeField(null=True, blank=True)
    # Number of its starts: runtime.contract.START_NUMBER. The other columns describe the present start.
    start_number = models.PositiveIntegerField(default=1)
    # Number of restarts after a loss, bounded by jobs.lifecycle.replica_facts.RESTARTS.
    restarts = models.PositiveIntegerField(default=0)
    # Killed by fault injection: its end uses no restart.
    rehearsed = models.BooleanField(default=False)
    # Stopped because fewer trainers are desired; its end is neither a loss nor a failure.
    dismissed = models.BooleanField(default=False)
    # Its agent reported the end, after the last of its output.
    flushed = models.BooleanField(default=False)
    # When its process was started, when it first registered, and when it ended.
    started = models.DateTimeField(null=True, blank=True)
    registered = models.DateTimeField(null=True, blank=True)
    finished = models.DateTimeField(null=True, blank=True)
    # The revision of its registration in the coordination store: of several masters the one with the lowest serves.
    incarnation = models.BigIntegerField(null=True, blank=True)
    # jobs.lifecycle.holds.Held while its program is held at an exception.
    held = models.JSONField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "name"], name="one_replica_per_name")]


class Transition(models.Model):
    """One change of a job's state. Source of the event timeline."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="transitions")
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField()
    old = models.CharField(max_length=16, blank=True)
    state = models.CharField(max_length=16)
    reason = models.CharField(max_length=32, blank=True)
    why = MessageField(blank=True)
    # The user who caused it; null for the platform.
    actor = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        indexes = [models.Index(fields=["job", "id"])]


class JobEvent(models.Model):
    """Event of a job or replica other than a change of state (joined, left, killed, task reassigned)."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="happenings")
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField()
    replica = models.CharField(max_length=63, blank=True)
    kind = models.CharField(max_length=32)
    text = MessageField()

    class Meta:
        indexes = [models.Index(fields=["job", "at", "id"])]


class Scaling(models.Model):
    """One change of a job's desired number of trainers."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="scalings")
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField()
    before = models.PositiveIntegerField()
    after = models.PositiveIntegerField()
    # By the controller of elastic jobs; otherwise a user requested it.
    automatic = models.BooleanField()

    class Meta:
        indexes = [models.Index(fields=["job", "id"])]


class ElasticMode(models.TextChoices):
    """Mode of the controller of elastic jobs."""

    ON = "on"
    EXPLAIN = "explain"  # decides and reports, and changes nothing
    OFF = "off"


class Elastic(models.Model):
    """State of the controller of elastic jobs: its leader, mode and last decisions. One row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    # Set by admins; empty: as in the settings.
    mode = models.CharField(max_length=8, choices=ElasticMode.choices, blank=True)
    # Leader, and the end of its lease. A new leader increments the term; writes of an earlier term are refused.
    holder = models.CharField(max_length=100, blank=True)
    term = models.PositiveBigIntegerField(default=0)
    until = models.DateTimeField(null=True, blank=True)
    # By job: its desired number of trainers, and the reason (a message as JSON).
    decisions = models.JSONField(default=dict)
    decided = models.DateTimeField(null=True, blank=True)
    # Cores of all nodes, if there is a cluster that can be read.
    cores = models.FloatField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_controller_of_elastic_jobs")]


class Neighbour(models.Model):
    """Cores that pods outside the portal used on the cluster during a period.

    ``key``: namespace and name of a service on the cluster; empty: all other pods together.
    """

    key = models.CharField(max_length=320, blank=True)
    cores = models.FloatField()
    begun = models.DateTimeField()
    ended = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["ended"])]


class FailedTask(models.Model):
    """A periodic task of the sweep whose last run failed: ``jobs.maintenance.periodic``."""

    name = models.CharField(max_length=64, primary_key=True)
    since = models.DateTimeField()
    last = models.DateTimeField()
    failures = models.PositiveIntegerField()
    error = models.TextField()


class Retention(models.Model):
    """Progress of the removal of data of ended jobs: ``jobs.maintenance.retention``."""

    kind = models.CharField(max_length=16, primary_key=True)
    # All data of this kind is removed for jobs that ended by this time.
    until = models.DateTimeField()


class Artifact(models.Model):
    """Output file of an attempt: the trained model, or another file of its output directory."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="artifacts")
    attempt = models.PositiveIntegerField()
    replica = models.CharField(max_length=63)
    name = models.CharField(max_length=200)
    size = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)
    # Its key in the storage.
    key = models.CharField(max_length=300)
    created = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "name"], name="one_artifact_per_name")]
