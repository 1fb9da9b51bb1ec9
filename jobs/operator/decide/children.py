"""Actions that bring a job's objects in line with its status. Pure.

An object is created only if no other has its name, so none is created and deleted at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from jobs.kubernetes_objects import pod_names
from jobs.operator.decide import kubelet_nudge
from jobs.operator.decide.cleanup_policy import cleans
from jobs.operator.decide.peer_config import desired_config_map
from jobs.operator.decide.status import Record, current_pods, is_superseded
from jobs.operator.manifests.podgroup import READY, is_volcano_s, pod_group
from jobs.operator.manifests.pods import pod
from jobs.operator.manifests.services import service
from jobs.operator.model import names
from jobs.operator.model.actions import Action, Create, Delete, DeleteJob, Patch, PatchJob
from jobs.operator.model.conditions import moment_of
from jobs.operator.model.names import Object
from jobs.operator.model.observed import Observed, Settings, attempt_of, is_finished
from jobs.operator.model.pod_options import PodOptions
from jobs.operator.model.spec import Intranet, PaddleJob

_GRACE_DIGITS = 5  # longer annotations are ignored


def actions(job: PaddleJob, record: Record, observed: Observed, now: datetime, settings: Settings) -> Iterator[Action]:
    if job.leaving:
        yield from _remove_finalizer(job)
        return
    yield from _lost_pods(observed, now, settings)
    if record.ended:
        yield from _after_the_end(job, record, observed, now)
    elif job.problems:
        return
    elif record.suspended:
        yield from _nothing_left(job, observed)
    else:
        yield from _while_active(job, record, observed, now, settings)


def _remove_finalizer(job: PaddleJob) -> Iterator[Action]:
    """Yield the removal of paddle-operator's finalizer, which would block the garbage collector."""
    if names.FINALIZER in job.finalizers:
        yield PatchJob(
            {"metadata": {"finalizers": [name for name in job.finalizers if name != names.FINALIZER] or None}}
        )


def ends_at(job: PaddleJob, record: Record) -> datetime | None:
    """Return the time at which an ended job is deleted; None: never."""
    if job.run.ttl is None or record.completion is None:
        return None
    return record.completion + timedelta(seconds=job.run.ttl)


def _after_the_end(job: PaddleJob, record: Record, observed: Observed, now: datetime) -> Iterator[Action]:
    over = ends_at(job, record)
    if over is not None and over <= now:
        yield DeleteJob()
        return
    clean = cleans(job.clean, record.phase)
    yield from _deletions("Pod", (pod for pod in observed.pods if clean or not is_finished(pod)))
    if clean:
        yield from _deletions("Service", observed.services)
    yield from _deletions("PodGroup", _one(observed.pod_group))


def _nothing_left(job: PaddleJob, observed: Observed) -> Iterator[Action]:
    yield from _deletions("Pod", observed.pods, grace_of(job))
    yield from _deletions("Service", observed.services)
    yield from _deletions("ConfigMap", _one(observed.config_map))
    yield from _deletions("PodGroup", _one(observed.pod_group))


def _while_active(
    job: PaddleJob, record: Record, observed: Observed, now: datetime, settings: Settings
) -> Iterator[Action]:
    desired = {name for name, _, _ in job.pod_names()}
    staying = {names.uid_of(item) for item in current_pods(job, observed, record)}
    yield from _deletions("Pod", (item for item in observed.pods if names.uid_of(item) not in staying))
    superseded = (item for item in observed.pods if is_superseded(job, record, item))
    yield from _deletions("Pod", (item for item in superseded if names.uid_of(item) in staying))
    yield from _deletions("Service", (item for item in observed.services if names.name_of(item) not in desired))
    if job.intranet is Intranet.HOST and names.HOST_PORT_ANNOTATION not in job.annotations:
        if observed.block is not None:
            yield PatchJob({"metadata": {"annotations": {names.HOST_PORT_ANNOTATION: str(observed.block)}}})
        return
    volcano = settings.pods.volcano and is_volcano_s(job)
    yield from _pod_group(job, observed) if volcano else ()
    yield from _missing_services(job, observed)
    if may_make_pods(job, record, observed, now) and (not volcano or _is_let_in(observed)):
        options = PodOptions(settings.pods.init_image, volcano)
        yield from _missing_pods(job, record, observed, options)
    yield from _config_map(job, record, observed)
    yield from kubelet_nudge.patches(current_pods(job, observed, record), observed.config_map, now)


def may_make_pods(job: PaddleJob, record: Record, observed: Observed, now: datetime) -> bool:
    """Whether pods may be created: the pause is over, and no object of an earlier attempt is left."""
    if record.not_before is not None and now < record.not_before:
        return False
    if ("ConfigMap", job.name) in observed.foreign:
        return False  # pods would read its data
    left = [*observed.pods, *_one(observed.config_map)]
    return all(attempt_of(item, record.attempt) == record.attempt for item in left)


def _is_let_in(observed: Observed) -> bool:
    return ((observed.pod_group or {}).get("status") or {}).get("phase") in READY


def _pod_group(job: PaddleJob, observed: Observed) -> Iterator[Action]:
    desired = pod_group(job)
    if observed.pod_group is None:
        yield Create(desired)
        return
    current = observed.pod_group.get("spec") or {}
    change = {key: value for key, value in desired["spec"].items() if current.get(key) != value}
    if change:
        yield Patch("PodGroup", job.name, {"spec": change})


def _missing_services(job: PaddleJob, observed: Observed) -> Iterator[Action]:
    there = {names.name_of(item) for item in observed.services}
    for name, _, _ in job.pod_names():
        if name not in there and ("Service", name) not in observed.foreign:
            yield Create(service(job, name))


def _missing_pods(job: PaddleJob, record: Record, observed: Observed, options: PodOptions) -> Iterator[Action]:
    for name, role, index in job.pod_names():
        if name in observed.pods_by_name or ("Pod", name) in observed.foreign:
            continue
        before = record.starts.get(pod_names.place(role.name, index), 0)
        if job.starts is None:
            yield Create(pod(job, role, index, record.attempt, options))
        elif before < record.counts.allowed(job, role.name, index):
            yield Create(pod(job, role, index, record.attempt, options, before + 1))


def _config_map(job: PaddleJob, record: Record, observed: Observed) -> Iterator[Action]:
    current = observed.config_map
    if current is not None and attempt_of(current, record.attempt) != record.attempt:
        yield from _deletions("ConfigMap", [current])
        return
    pods = {names.name_of(item): item for item in current_pods(job, observed, record)}
    desired = desired_config_map(job, pods, current, record.attempt)
    if desired is None or ("ConfigMap", job.name) in observed.foreign:
        return
    if current is None:
        yield Create(desired)
    elif job.meets_again and (current.get("data") != desired["data"] or _members(current) != _members(desired)):
        yield Patch("ConfigMap", job.name, _difference(current, desired))


def _members(config_map: Object) -> str:
    return str((config_map["metadata"].get("annotations") or {}).get(names.MEMBERS_ANNOTATION, ""))


def _difference(current: Object, desired: Object) -> Object:
    gone = {key: None for key in current.get("data") or {} if key not in desired["data"]}
    annotations = {names.MEMBERS_ANNOTATION: _members(desired)}
    return {"metadata": {"annotations": annotations}, "data": {**gone, **desired["data"]}}


def grace_of(job: PaddleJob) -> int | None:
    """Return the grace period in seconds for pods of the suspended job; None: that of their template."""
    annotation = job.annotations.get(names.GRACE_ANNOTATION, "")
    return (
        int(annotation)
        if annotation.isascii() and annotation.isdecimal() and len(annotation) <= _GRACE_DIGITS
        else None
    )


def _deletions(kind: str, items: Iterable[Object], grace: int | None = None) -> Iterator[Action]:
    for item in items:
        if not names.is_leaving(item):
            yield Delete(kind, names.name_of(item), names.uid_of(item), grace)


def given_up_at(pod: Object, settings: Settings) -> datetime | None:
    """Return the time at which a pod that is being deleted is deleted by force; None: never.

    By then its node should have confirmed the deletion long ago.
    """
    leaves = moment_of(pod["metadata"].get("deletionTimestamp"))
    return leaves + timedelta(seconds=settings.lost_after) if leaves and settings.lost_after else None


def _lost_pods(observed: Observed, now: datetime, settings: Settings) -> Iterator[Action]:
    """Yield forced deletions of pods on failed or disconnected nodes.

    New pods need their names. Processes that still run there belong to an attempt whose reports are no longer accepted.
    """
    for item in observed.pods:
        moment = given_up_at(item, settings)
        if moment is not None and moment <= now:
            yield Delete("Pod", names.name_of(item), names.uid_of(item), grace=0)


def _one(item: Object | None) -> list[Object]:
    return [] if item is None else [item]
