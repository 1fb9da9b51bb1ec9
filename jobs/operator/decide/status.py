"""The next status of a job, from its observed objects. Pure.

Decisions in the status are written before the actions that ``children.py`` derives from them, so a controller that is
killed in between counts nothing twice. A counted failed pod is listed in ``counted`` until it is deleted, and pods of
earlier attempts are ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from jobs.kubernetes_objects import pod_names
from jobs.operator.decide import gang, replacement, replica_status, waiting_reason
from jobs.operator.decide.cleanup_policy import cleans
from jobs.operator.decide.peer_config import is_out_of_date
from jobs.operator.decide.replacement import Starts
from jobs.operator.model import names
from jobs.operator.model.conditions import ENDED, Kind, Phase, moment_of, since, written
from jobs.operator.model.failure_policy import Failure, Verdict, failure_of, judge, pause
from jobs.operator.model.names import Object
from jobs.operator.model.observed import Observed, Settings, attempt_of, is_finished, phase_of, start_number_of
from jobs.operator.model.spec import PaddleJob


@dataclass(frozen=True)
class Record:
    """The part of a status from which the next one is computed."""

    phase: Phase = Phase.NONE
    reason: str = ""
    message: str = ""
    attempt: int = 1
    restarts: int = 0
    releases: int = 0
    counted: tuple[str, ...] = ()
    start: datetime | None = None
    completion: datetime | None = None
    not_before: datetime | None = None
    holding_since: datetime | None = None
    progress: Mapping[str, str] = field(default_factory=dict)
    suspended: bool = False
    running_since: datetime | None = None
    starts: Mapping[str, int] = field(default_factory=dict)
    granted: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, status: Object) -> Record:
        return cls(
            phase=Phase(status.get("phase", "")),
            reason=str(status.get("reason", "")),
            message=str(status.get("message", "")),
            attempt=int(status.get("attempt") or 1),
            restarts=int(status.get("restarts", 0)),
            releases=int(status.get("releases", 0)),
            counted=tuple(status.get("counted") or ()),
            start=moment_of(status.get("startTime")),
            completion=moment_of(status.get("completionTime")),
            not_before=moment_of(status.get("notBefore")),
            holding_since=moment_of(status.get("holdingSince")),
            progress=status.get("progress") or {},
            suspended=since(status, Kind.SUSPENDED) is not None,
            running_since=since(status, Kind.RUNNING),
            starts=status.get("starts") or {},
            granted=status.get("grantedStarts") or {},
            lost=status.get("lostSince") or {},
        )

    @property
    def memory(self) -> tuple[object, ...]:
        """The values that cannot be observed again: counts, attempt, times, and the end."""
        phase = self.phase if self.ended else Phase.NONE
        moments = (self.start, self.not_before, self.holding_since, self.running_since)
        return (
            *(phase, self.attempt, self.restarts, self.releases, self.counted, self.suspended),
            *(dict(self.starts), dict(self.granted), dict(self.lost)),
            *moments,
        )

    @property
    def counts(self) -> Starts:
        return Starts(self.starts, self.granted, self.lost)

    @property
    def ended(self) -> bool:
        return self.phase in ENDED


@dataclass(frozen=True)
class Situation:
    """The input of the rules. ``pods``: the pods that count, as ``current_pods`` returns them before any rule."""

    job: PaddleJob
    observed: Observed
    pods: list[Object]
    now: datetime
    settings: Settings


def current_pods(job: PaddleJob, observed: Observed, record: Record) -> list[Object]:
    """Return the pods that count: desired, of the current attempt, not being deleted, and no counted failures."""
    desired = {name for name, _, _ in job.pod_names()}
    return [
        pod
        for pod in observed.pods
        if names.name_of(pod) in desired
        and not names.is_leaving(pod)
        and attempt_of(pod, record.attempt) == record.attempt
        and names.uid_of(pod) not in record.counted
    ]


def next_record(job: PaddleJob, observed: Observed, now: datetime, settings: Settings) -> Record:
    before = _with_starts(job, observed, Record.of(job.status))
    if job.leaving:
        return replace(before, phase=Phase.TERMINATING)
    if before.ended and not _is_reopened(job, before):
        return before
    if before.ended:
        before = replace(before, phase=Phase.PENDING, completion=None, reason="", message="")
    if job.problems:
        return replace(
            before, phase=before.phase or Phase.PENDING, reason="InvalidSpec", message=" ".join(job.problems)
        )
    if job.run.suspend:
        return _suspended(before)
    if before.suspended:
        fresh = replace(before, suspended=False, phase=Phase.PENDING, attempt=before.attempt + 1, starts={}, granted={})
        return replace(fresh, reason="", message="")
    return _active(job, observed, before, now, settings)


def _is_reopened(job: PaddleJob, ended: Record) -> bool:
    """Whether a pod that had succeeded is to start again.

    The creator of the job, which sets ``starts``, may raise them just after the last pod has succeeded.
    """
    if job.starts is None or job.run.suspend or ended.phase is not Phase.COMPLETED:
        return False
    if not job.success.every or cleans(job.clean, ended.phase):
        return False
    awaited = ((role.name, index) for _, role, index in job.pod_names() if role.name in job.success.roles)
    return any(ended.starts.get(pod_names.place(*place), 0) < job.starts_of(*place) for place in awaited)


def _with_starts(job: PaddleJob, observed: Observed, record: Record) -> Record:
    """Return the record with the start numbers of the observed pods, which may be deleted before the next pass."""
    if job.starts is None:
        return record
    observed_starts = {
        pod_names.place(*pod_names.role_and_index(names.name_of(pod))): start_number
        for pod in observed.pods
        if (start_number := start_number_of(pod)) and attempt_of(pod, record.attempt) == record.attempt
    }
    fresh = {
        place: start_number
        for place, start_number in observed_starts.items()
        if start_number > record.starts.get(place, 0)
    }
    return replace(record, starts={**record.starts, **fresh}) if fresh else record


def _suspended(before: Record) -> Record:
    return replace(
        before,
        phase=Phase.SUSPENDED,
        reason="Suspended",
        message="The job is suspended. Set spec.runPolicy.suspend to false to go on.",
        start=None,
        not_before=None,
        holding_since=None,
        counted=(),
        progress={},
        lost={},
        suspended=True,
        running_since=None,
    )


def _active(job: PaddleJob, observed: Observed, before: Record, now: datetime, settings: Settings) -> Record:
    present = {names.uid_of(pod) for pod in observed.pods}
    record = replace(before, counted=tuple(uid for uid in before.counted if uid in present))
    record = _with_progress(job, record, now)
    situation = Situation(job, observed, current_pods(job, observed, record), now, settings)
    if _has_succeeded(job, record, situation.pods):
        return _end(record, Phase.COMPLETED, now, "Completed", "")
    for rule in _RULES:
        after = rule(situation, record)
        if after.ended or after.attempt != record.attempt:
            return after
        record = after
    pods = current_pods(job, observed, record)
    record = replace(record, phase=_phase(job, pods, record))
    if record.phase is Phase.RUNNING:
        running = record.running_since or now
        return replace(
            record, start=record.start or now, running_since=running, releases=0, not_before=None, reason="", message=""
        )
    record = replace(record, running_since=None)
    if record.not_before and record.not_before <= now:
        record = replace(record, not_before=None)
    reason, message = waiting_reason.why_waiting(job, observed, pods, record.not_before)
    return replace(record, reason=reason, message=message)


def _with_progress(job: PaddleJob, record: Record, now: datetime) -> Record:
    value = job.annotations.get(names.PROGRESS_ANNOTATION, "")
    if not value or value == record.progress.get("value"):
        return record
    return replace(record, progress={"value": value, "since": written(now)})


def _has_succeeded(job: PaddleJob, record: Record, pods: list[Object]) -> bool:
    done = {names.name_of(pod) for pod in pods if phase_of(pod) == "Succeeded" and not is_superseded(job, record, pod)}
    awaited = [name for name, role, _ in job.pod_names() if role.name in job.success.roles]
    return all(name in done for name in awaited) if job.success.every else any(name in done for name in awaited)


def is_superseded(job: PaddleJob, record: Record, pod: Object) -> bool:
    """Whether another pod is to start in the place of this one.

    It waits for the end of a pod if the creator of the job has allowed it. If the controller has granted it, this pod
    was taken for lost, and its creator may count the next one already.
    """
    if job.starts is None:
        return False
    role, index = pod_names.role_and_index(names.name_of(pod))
    number = start_number_of(pod)
    if number < record.granted.get(pod_names.place(role, index), 0):
        return True
    return is_finished(pod) and number < job.starts_of(role, index)


# --- Rules -----------------------------------------------------------------------------------------------------------
# Each returns the record after it. The first that ends the job or begins a new attempt is the last one that applies.
def _failures(situation: Situation, record: Record) -> Record:
    """Count the pods that failed, and start them again or end the job."""
    job, now = situation.job, situation.now
    if job.starts is not None:
        return record  # the creator of the job decides about restarts
    failed = [pod for pod in situation.pods if phase_of(pod) == "Failed"]
    found = [(names.uid_of(pod), failure_of(pod, replica_status.role_of(pod))) for pod in failed]
    return _answer(job, found, record, now) if found else record


def _answer(job: PaddleJob, found: list[tuple[str, Failure]], record: Record, now: datetime) -> Record:
    restarts = record.restarts
    for _, failure in found:
        # Pods that are restarted together count once.
        so_far = restarts if job.replaces_alone else record.restarts
        verdict = judge(failure, job.failure_rules, so_far, job.run.backoff_limit)
        if verdict is Verdict.FAIL:
            return _failed(job, failure, record, so_far, now)
        if verdict is Verdict.RESTART:
            restarts = so_far + 1
    description = f"{found[0][1].description()}. It is started again."
    updated = replace(record, restarts=restarts, reason="Restarting", message=description)
    later = now + timedelta(seconds=pause(max(restarts, record.attempt)))
    if job.replaces_alone:
        return replace(updated, counted=(*record.counted, *(uid for uid, _ in found)), not_before=later)
    return _new_attempt(updated, later)


def _failed(job: PaddleJob, failure: Failure, record: Record, restarts: int, now: datetime) -> Record:
    limit = job.run.backoff_limit or 0
    reason = "BackoffLimitExceeded" if 0 < limit <= restarts else "PodFailed"
    return _end(record, Phase.FAILED, now, reason, f"{failure.description()}.")


def _limits(situation: Situation, record: Record) -> Record:
    """End a job that was restarted too often or ran for too long, and restart one without progress."""
    job, now = situation.job, situation.now
    run, again = job.run, replica_status.container_restarts(situation.pods)
    if run.backoff_limit is not None and again >= max(run.backoff_limit, 1):
        message = f"Containers were started again {again} times; spec.runPolicy.backoffLimit is {run.backoff_limit}."
        return _end(record, Phase.FAILED, now, "BackoffLimitExceeded", message)
    if run.active_deadline is not None and record.start and (now - record.start).total_seconds() >= run.active_deadline:
        message = f"The job ran for {run.active_deadline} s, which is spec.runPolicy.activeDeadlineSeconds."
        return _end(record, Phase.FAILED, now, "DeadlineExceeded", message)
    stalled = stalled_at(job, record)
    if stalled is not None and stalled <= now:
        return _stalled(job, record, now)
    return record


def stalled_at(job: PaddleJob, record: Record) -> datetime | None:
    """Return the time from which a running job without further progress counts as stalled; None: never."""
    if job.run.stall is None or record.running_since is None:
        return None
    reported = moment_of(record.progress.get("since"))
    return max(reported or record.running_since, record.running_since) + timedelta(seconds=job.run.stall)


def _stalled(job: PaddleJob, record: Record, now: datetime) -> Record:
    message = f"No progress for {job.run.stall} s, which is spec.runPolicy.stallTimeoutSeconds"
    failure = Failure(job.name, "", reason="Stalled", message=message)
    if judge(failure, job.failure_rules, record.restarts, job.run.backoff_limit) is Verdict.FAIL:
        return _end(record, Phase.FAILED, now, "Stalled", f"{message}.")
    updated = replace(
        record, restarts=record.restarts + 1, reason="Restarting", message=f"{message}. It is started again."
    )
    return _new_attempt(updated, now + timedelta(seconds=pause(record.restarts + 1)))


def _membership(situation: Situation, record: Record) -> Record:
    """Begin a new attempt if the pods have other peers than they were started with."""
    if situation.job.meets_again or not is_out_of_date(situation.job, situation.observed, record.attempt):
        return record
    message = "The pods of the job have changed. All pods restart so that they find one another."
    return _new_attempt(replace(record, reason="MembersChanged", message=message), None)


def _gang(situation: Situation, record: Record) -> Record:
    """Begin a new attempt if a part of the gang has held capacity for too long while the rest found none."""
    job, pods, now = situation.job, situation.pods, situation.now
    if job.starts is not None or not gang.is_holding(job, pods):
        return replace(record, holding_since=None)
    since = record.holding_since or now
    if not gang.has_waited(job, since, now, situation.settings):
        return replace(record, holding_since=since)
    updated = replace(record, releases=record.releases + 1, reason="GangTimeout", message=gang.message(job, pods))
    return _new_attempt(updated, now + timedelta(seconds=gang.pause(updated.releases)))


def _replacement(situation: Situation, record: Record) -> Record:
    """Grant another start to places that have lost their pod."""
    job, settings = situation.job, situation.settings
    after = replacement.updated(job, situation.observed, record.counts, situation.now, settings.replace_after)
    return replace(record, granted=after.granted, lost=after.lost)


_Rule = Callable[[Situation, Record], Record]
_RULES: tuple[_Rule, ...] = (_failures, _limits, _membership, _gang, _replacement)


# --- Changes of a record ---------------------------------------------------------------------------------------------


def _new_attempt(record: Record, not_before: datetime | None) -> Record:
    """Return the record of a new attempt: all pods start together, once the existing ones are deleted."""
    return replace(
        record,
        phase=Phase.PENDING,
        attempt=record.attempt + 1,
        not_before=not_before,
        holding_since=None,
        counted=(),
        progress={},
        running_since=None,
        starts={},
        granted={},
        lost={},
    )


def _end(record: Record, phase: Phase, now: datetime, reason: str, message: str) -> Record:
    return replace(
        record,
        phase=phase,
        reason=reason,
        message=message,
        start=record.start or now,
        completion=now,
        not_before=None,
        holding_since=None,
        running_since=None,
        lost={},
    )


def _phase(job: PaddleJob, pods: list[Object], record: Record) -> Phase:
    states = [replica_status.state_of(pod) for pod in pods]
    if job.meets_again and _are_enough(job, pods):
        return Phase.RUNNING
    if "starting" in states:
        return Phase.STARTING
    if "pending" in states or len(pods) < job.total:
        return Phase.PENDING
    # The state of a pod in phase Unknown is not available, because its node does not report: the phase stays.
    return record.phase if "unknown" in states else Phase.RUNNING


def _are_enough(job: PaddleJob, pods: list[Object]) -> bool:
    up = Counter(
        replica_status.role_of(pod) for pod in pods if replica_status.state_of(pod) in ("running", "succeeded")
    )
    return all(up[role.name] >= role.least for role in job.roles.values())
