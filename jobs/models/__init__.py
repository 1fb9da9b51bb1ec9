"""A job and all that is known of it. ``Job.state`` has one writer: ``jobs.reconcile.reconciler.apply``."""

from __future__ import annotations

import uuid

from django.db import models

from datasets.models import Version
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.models import streams as _stream_models  # noqa: F401  registers the tables of the streams with this app
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
    "Replica",
    "ReplicaState",
    "Retention",
    "Scaling",
    "Transition",
]


class CodeSnapshot(models.Model):
    """The files of a submission, by the hash of their content. Kept in the storage as one archive."""

    digest = models.CharField(max_length=64, primary_key=True)
    size = models.PositiveBigIntegerField()
    created = models.DateTimeField(auto_now_add=True)


class Job(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, related_name="jobs")
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="jobs")
    name = models.CharField(max_length=63)
    # The version of a namespace's dataset that it trains on, fixed when it was submitted; empty for shipped ones, and
    # once the version is gone for good.
    dataset_version = models.ForeignKey(Version, null=True, blank=True, on_delete=models.SET_NULL, related_name="jobs")
    # The resolved specification (jobs.spec.model.JobSpec.to_json), without the files; it never changes.
    spec = models.JSONField()
    snapshot = models.ForeignKey(CodeSnapshot, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=16, choices=[(state, state) for state in JobState], default=JobState.QUEUED)
    # jobs.lifecycle.reasons.Reason while stopping and after the end, else empty.
    reason = models.CharField(max_length=32, blank=True)
    # The message that the user reads beside the state.
    why = models.TextField(blank=True)
    # The number of the attempt that waits or runs, or was the last.
    attempt = models.PositiveIntegerField(default=1)
    # How many attempts were made again, by reason, since a person last set the job going.
    requeues = models.JSONField(default=dict)
    # Raised by every write of the reconciler, and by a person's that it must not overlook; the guard of its
    # compare-and-set.
    revision = models.PositiveBigIntegerField(default=0)
    created = models.DateTimeField()
    # When the state last changed, when training began for the first time, and when all ended.
    changed = models.DateTimeField()
    started = models.DateTimeField(null=True, blank=True)
    finished = models.DateTimeField(null=True, blank=True)
    # How many trainers a person or the controller of elastic jobs last wished for; empty: as many as the specification
    # says.
    trainers = models.PositiveIntegerField(null=True, blank=True)
    # The same of parameter servers, from the next attempt on.
    pservers = models.PositiveIntegerField(null=True, blank=True)
    # Whether the platform may change the number of trainers, where a person has said so; empty: as the specification
    # says.
    elastic = models.BooleanField(null=True, blank=True)
    # jobs.lifecycle.fault_injection.Rehearsal while failure is rehearsed.
    rehearsal = models.JSONField(null=True, blank=True)
    # The wish to cancel; a fact that the reconciler reads.
    cancel_requested = models.DateTimeField(null=True, blank=True)
    cancelled_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    # Set by the client; a second POST with the same key gives the first job again.
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
    """One try of a job."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    # SHA-256 of the token that its agents hold.
    token_digest = models.CharField(max_length=64)
    # When it was admitted; the job's timeout counts from here.
    created = models.DateTimeField()
    finished = models.DateTimeField(null=True, blank=True)

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
    why = models.TextField(blank=True)
    code = models.IntegerField(null=True, blank=True)
    signal = models.IntegerField(null=True, blank=True)
    out_of_memory = models.BooleanField(default=False)
    heartbeat = models.DateTimeField(null=True, blank=True)
    # How often it was started: runtime.contract.START_NUMBER. What else is kept here is about the present life.
    start_number = models.PositiveIntegerField(default=1)
    # How often it was started again after a loss: jobs.lifecycle.observations.RESTARTS bounds it.
    restarts = models.PositiveIntegerField(default=0)
    # A rehearsal has killed it: its end costs no restart.
    rehearsed = models.BooleanField(default=False)
    # It was asked to leave, for fewer trainers are wanted; its end is neither a loss nor a failure.
    dismissed = models.BooleanField(default=False)
    # Its agent told of the end, after the last of its output.
    flushed = models.BooleanField(default=False)
    # When its process was started, when it first registered, and when it ended.
    started = models.DateTimeField(null=True, blank=True)
    registered = models.DateTimeField(null=True, blank=True)
    finished = models.DateTimeField(null=True, blank=True)
    # The revision of its registration in the coordination store: of several masters the one with the lowest serves.
    incarnation = models.BigIntegerField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "name"], name="one_replica_per_name")]


class Transition(models.Model):
    """One change of a job's state: history, and the source of the event timeline."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="transitions")
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField()
    old = models.CharField(max_length=16, blank=True)
    state = models.CharField(max_length=16)
    reason = models.CharField(max_length=32, blank=True)
    why = models.TextField(blank=True)
    # Who caused it; empty for the platform.
    actor = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        indexes = [models.Index(fields=["job", "id"])]


class JobEvent(models.Model):
    """Something that happened to a job or replica and is no change of state (joined, left, killed, task handed on)."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="happenings")
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField()
    replica = models.CharField(max_length=63, blank=True)
    kind = models.CharField(max_length=32)
    text = models.TextField()

    class Meta:
        indexes = [models.Index(fields=["job", "at", "id"])]


class Scaling(models.Model):
    """One change of the number of trainers that a job is to have."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="scalings")
    attempt = models.PositiveIntegerField()
    at = models.DateTimeField()
    before = models.PositiveIntegerField()
    after = models.PositiveIntegerField()
    # By the controller of elastic jobs; else a person wished for it.
    automatic = models.BooleanField()

    class Meta:
        indexes = [models.Index(fields=["job", "id"])]


class ElasticMode(models.TextChoices):
    """What the controller of elastic jobs does."""

    ON = "on"
    EXPLAIN = "explain"  # it decides and tells, and changes nothing
    OFF = "off"


class Elastic(models.Model):
    """The controller of elastic jobs: who leads, what admins have switched it to, what it decided last. One row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    # Empty: as the settings say.
    mode = models.CharField(max_length=8, choices=ElasticMode.choices, blank=True)
    # Who leads until when. Whoever takes over raises the term, and what is written in an earlier term is refused.
    holder = models.CharField(max_length=100, blank=True)
    term = models.PositiveBigIntegerField(default=0)
    until = models.DateTimeField(null=True, blank=True)
    # By job: how many trainers it shall have, and why.
    told = models.JSONField(default=dict)
    decided = models.DateTimeField(null=True, blank=True)
    # Those of all nodes, where there is a cluster that may be looked at.
    cores = models.FloatField(null=True, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_controller_of_elastic_jobs")]


class Neighbour(models.Model):
    """Cores that pods which are not the portal's took on the cluster for a while: those of a service, by its namespace
    and name there, or (an empty key) all others together."""

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
    """How far the removal of what ended jobs leave has come: ``jobs.maintenance.retention``."""

    kind = models.CharField(max_length=16, primary_key=True)
    # Of jobs that ended until then all of this kind is removed.
    until = models.DateTimeField()


class Artifact(models.Model):
    """A file that an attempt left: the trained model and what else it wrote to its output directory."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="artifacts")
    attempt = models.PositiveIntegerField()
    replica = models.CharField(max_length=63)
    name = models.CharField(max_length=200)
    size = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)
    # Where the storage keeps it.
    key = models.CharField(max_length=300)
    created = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "attempt", "name"], name="one_artifact_per_name")]
