"""Backend that runs the replicas of an attempt as pods, which the controller of one PaddleJob per attempt creates.

The backend keeps no state in memory. The PaddleJob holds the desired state: the number of replicas
(``spec.<role>.replicas``), the allowed starts of each (``spec.starts``), and whether the attempt was stopped
(``spec.runPolicy.suspend``). Its status and its pods are the observed state. The reconciler decides about restarts; if
it does not in time, the controller replaces a lost pod within the starts granted in advance (``spec.maxStarts``).

Values for the agents only are in a Secret with the name of the attempt, which is deleted with the PaddleJob.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.backends.base import (
    AttemptRef,
    AttemptView,
    BackendUnavailable,
    Container,
    ControlAddress,
    LaunchFailed,
    LaunchPlan,
    Phase,
)
from jobs.backends.checkpoint_store import CheckpointStore
from jobs.backends.kubernetes import manifests
from jobs.backends.kubernetes import observe as views
from jobs.backends.kubernetes.coalesce import gathered
from jobs.messages import cluster as messages
from jobs.operator.client.api import CONFLICT, FORBIDDEN, MISSING, Refusal, StreamingApi
from jobs.operator.client.resources import JOBS, NAMESPACES, PODS, Resource
from jobs.operator.model import names
from jobs.operator.model.names import Object
from jobs.operator.model.namespace_names import name_of
from runtime import contract

SECRETS = Resource("Secret", "/api/v1", "secrets")
_TOO_MANY, _BROKEN = 429, 500
# Objects of one answer to a list, which bounds the memory that one answer takes.
_PAGE = "500"
# Tries of a patch that compares the version it read.
_TRIES = 5
# Seconds after which a log stream without data is requested again: a broken connection looks like a quiet one.
_SILENCE = 60.0


_log = logging.getLogger(__name__)


class KubernetesBackend:
    """``ClusterBackend`` on a Kubernetes cluster. Attempts go on while the portal is stopped."""

    rehearses = True
    outlives_the_portal = True

    def __init__(
        self, api: StreamingApi, cluster: manifests.Cluster, checkpoints: CheckpointStore | None = None
    ) -> None:
        """``checkpoints``: the volume of checkpoints as mounted on this machine; None: it is not mounted here."""
        self._api, self._cluster, self._checkpoint_store = api, cluster, checkpoints

    # --- Launching ---------------------------------------------------------------------------------------------------
    def launch(self, plan: LaunchPlan) -> None:
        _check(plan, self._cluster)
        try:
            job = self._job(plan.ref)
            if job is not None and views.is_stopped(job):
                return
            # The Secret first: a pod that does not find it waits long before it retries.
            self._ensure_secret(manifests.secret(plan, self._cluster))
            job = job or self._ensure(JOBS, manifests.paddle_job(plan, self._cluster))
            self._set_secret_owner(plan.ref, job)
        except Refusal as refusal:
            missing = self._is_missing(refusal, plan.ref)
            raise _launch_failed(refusal, name_of(plan.namespace, self._cluster.prefix), missing=missing) from refusal

    def _ensure_secret(self, body: manifests.Manifest) -> None:
        """Create the Secret unless it exists. The same plan yields the same Secret; the portal may not read Secrets."""
        try:
            self._api.call("POST", SECRETS.path(body["metadata"]["namespace"]), body)
        except Refusal as refusal:
            if refusal.status != CONFLICT:
                raise

    def _ensure(self, resource: Resource, body: manifests.Manifest) -> Object:
        """Create the object, or return the existing one."""
        metadata = body["metadata"]
        try:
            return self._api.call("POST", resource.path(metadata["namespace"]), body)
        except Refusal as refusal:
            if refusal.status != CONFLICT:
                raise
            return self._api.call("GET", resource.path(metadata["namespace"], metadata["name"]))

    def _set_secret_owner(self, ref: AttemptRef, job: Object) -> None:
        """Make the PaddleJob the owner of the Secret, so that both are deleted together."""
        owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": names.name_of(job)}
        reference = {**owner, "uid": names.uid_of(job)}
        path = SECRETS.path(self._namespace(ref), manifests.job_name(ref.attempt_id))
        self._api.call("PATCH", path, {"metadata": {"ownerReferences": [reference]}})

    # --- Observing ---------------------------------------------------------------------------------------------------
    def observe(self, ref: AttemptRef) -> AttemptView:
        with _reachable():
            job = self._job(ref)
            return AttemptView(gone=True) if job is None else views.view(job, self._pods(ref))

    def observe_many(self, refs: Sequence[AttemptRef]) -> Mapping[str, AttemptView | None]:
        """List the PaddleJobs and pods of each namespace: two requests a page instead of two for each attempt."""
        found: dict[str, AttemptView | None] = {}
        for namespace, members in together(refs).items():
            try:
                found |= self._observe_namespace(name_of(namespace, self._cluster.prefix), members)
            except Refusal as refusal:
                if refusal.status in (MISSING, FORBIDDEN):
                    continue
                _log.warning("Nothing is seen of %d attempts in %s. %s", len(members), namespace, refusal.message)
                found |= dict.fromkeys((ref.attempt_id for ref in members), None)
        return found

    def _observe_namespace(self, namespace: str, refs: Sequence[AttemptRef]) -> dict[str, AttemptView | None]:
        # The pods first: a pod that is created in between then belongs to no job of the list, as if it came later.
        pods = views.by_job(self._listed(PODS, namespace, {"labelSelector": names.JOB_LABEL}))
        jobs = {names.name_of(job): job for job in self._listed(JOBS, namespace, {})}
        named = ((ref, manifests.job_name(ref.attempt_id)) for ref in refs)
        return {ref.attempt_id: views.view(jobs[name], pods.get(name, ())) for ref, name in named if name in jobs}

    def _listed(self, resource: Resource, namespace: str, query: Mapping[str, str]) -> Iterator[Object]:
        rest = ""
        while True:
            asked = {**query, "limit": _PAGE, **({"continue": rest} if rest else {})}
            page = self._api.call("GET", resource.path(namespace), query=asked)
            yield from page["items"]
            rest = (page.get("metadata") or {}).get("continue") or ""
            if not rest:
                return

    def _job(self, ref: AttemptRef) -> Object | None:
        try:
            return self._api.call("GET", self._path(ref))
        except Refusal as refusal:
            if not self._is_missing(refusal, ref):
                raise
            return None

    def _is_missing(self, refusal: Refusal, ref: AttemptRef) -> bool:
        """Return whether the refused request is about an object that does not exist.

        The portal's rights are bound in each of its namespaces. In a namespace that does not exist it has none, and the
        API server answers 403 instead of 404.
        """
        return refusal.status == MISSING or (refusal.status == FORBIDDEN and not self._has_namespace(ref))

    def _has_namespace(self, ref: AttemptRef) -> bool:
        try:
            self._api.call("GET", NAMESPACES.path(name=self._namespace(ref)))
        except Refusal as refusal:
            return refusal.status != MISSING
        return True

    def _pods(self, ref: AttemptRef) -> list[Object]:
        selector = f"{names.JOB_LABEL}={manifests.job_name(ref.attempt_id)}"
        answer = self._api.call("GET", PODS.path(self._namespace(ref)), query={"labelSelector": selector})
        return list(answer["items"])

    # --- Output of processes without agents ---------------------------------------------------------------------------
    def container(self, ref: AttemptRef, name: str) -> Container:
        with _reachable():
            try:
                return views.container(self._api.call("GET", self._pod_path(ref, name)))
            except Refusal as refusal:
                if not self._is_missing(refusal, ref):
                    raise
                return Container()

    def printed(self, ref: AttemptRef, name: str, since: int) -> Iterator[bytes]:
        query = {"container": manifests.CONTAINER, "follow": "true", "timestamps": "true"}
        if since:
            query["sinceTime"] = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with _reachable():
            # A program that prints line by line sends one piece per line.
            yield from gathered(self._api.stream(f"{self._pod_path(ref, name)}/log", query, _SILENCE))

    def _pod_path(self, ref: AttemptRef, name: str) -> str:
        return PODS.path(self._namespace(ref), manifests.pod_name(ref.attempt_id, name))

    # --- Control channel ----------------------------------------------------------------------------------------------
    def control_address(self, ref: AttemptRef, name: str) -> ControlAddress | None:
        with _reachable():
            try:
                return views.control_address(self._api.call("GET", self._pod_path(ref, name)))
            except Refusal as refusal:
                if not self._is_missing(refusal, ref):
                    raise
                return None

    # --- Requesting changes ------------------------------------------------------------------------------------------
    def scale(self, ref: AttemptRef, role: str, replicas: int) -> None:
        self._change(ref, lambda job: _scaled(job, role, replicas))

    def restart(self, ref: AttemptRef, name: str, start_number: int) -> None:
        held = {Phase.STARTING, Phase.RUNNING}
        if any(one.name == name and one.phase in held for one in self.observe(ref).replicas):
            return
        self._change(ref, lambda job: _begun_again(job, name, start_number))

    def grant_starts(self, ref: AttemptRef, limits: Mapping[str, int]) -> None:
        self._change(ref, lambda job: _granted(job, limits))

    def kill(self, ref: AttemptRef, name: str) -> None:
        with _reachable():
            self._delete(PODS, ref, manifests.pod_name(ref.attempt_id, name), gracePeriodSeconds=0)

    def stop(self, ref: AttemptRef, grace: timedelta) -> None:
        """Suspend the PaddleJob and delete its pods at once; the controller would delete them a little later.

        Both use this grace. A later call can shorten the grace, never extend it.
        """
        seconds = manifests.grace_seconds(grace.total_seconds())
        if not self._change(ref, lambda job: _suspended(seconds), also_stopped=True):
            return
        with _reachable():
            for pod in self._pods(ref):
                if not _leaves_within(pod, seconds):
                    self._delete(PODS, ref, names.name_of(pod), gracePeriodSeconds=seconds)

    def cleanup(self, ref: AttemptRef) -> None:
        observed = self.observe(ref)
        if observed.gone or any(one.phase in (Phase.STARTING, Phase.RUNNING) for one in observed.replicas):
            return
        with _reachable():
            self._delete(SECRETS, ref, manifests.job_name(ref.attempt_id))
            self._delete(JOBS, ref, manifests.job_name(ref.attempt_id), propagationPolicy="Background")

    def attempts(self, namespaces: Collection[str]) -> Iterator[AttemptRef]:
        for namespace in sorted(namespaces):
            for job in self._jobs_in(namespace):
                labels = job["metadata"].get("labels") or {}
                if {manifests.JOB_LABEL, manifests.ATTEMPT_LABEL, manifests.NUMBER_LABEL} <= labels.keys():
                    number = int(labels[manifests.NUMBER_LABEL])
                    yield AttemptRef(labels[manifests.JOB_LABEL], labels[manifests.ATTEMPT_LABEL], number, namespace)

    def _jobs_in(self, namespace: str) -> list[Object]:
        """Return the PaddleJobs of attempts in a namespace; none if the namespace does not exist."""
        ref = AttemptRef("", "", 0, namespace)
        with _reachable():
            try:
                path = JOBS.path(self._namespace(ref))
                return list(self._api.call("GET", path, query={"labelSelector": manifests.ATTEMPT_LABEL})["items"])
            except Refusal as refusal:
                if not self._is_missing(refusal, ref):
                    raise
                return []

    def last_checkpoint(self, job_id: str) -> int:
        return self._checkpoint_store.last(job_id) if self._checkpoint_store else 0

    def checkpoint_sizes(self) -> Mapping[str, int]:
        return self._checkpoint_store.sizes() if self._checkpoint_store else {}

    def forget(self, job_id: str) -> None:
        if self._checkpoint_store:
            self._checkpoint_store.forget(job_id)

    def _change(
        self, ref: AttemptRef, change: Callable[[Object], Mapping[str, Any] | None], *, also_stopped: bool = False
    ) -> bool:
        """Patch the desired state of the PaddleJob. Return False if there is none, or it was stopped before."""
        with _reachable():
            for _ in range(_TRIES):
                job = self._job(ref)
                if job is None or (views.is_stopped(job) and not also_stopped):
                    return False
                body = None if views.is_stopped(job) else change(job)
                if body is None or self._patched(ref, job, body):
                    return True
            raise BackendUnavailable(messages.PADDLEJOB_CONFLICT())

    def _patched(self, ref: AttemptRef, job: Object, body: Mapping[str, Any]) -> bool:
        """Patch the PaddleJob; return False if it has changed since it was read."""
        metadata = {**body.get("metadata", {}), "resourceVersion": job["metadata"]["resourceVersion"]}
        try:
            self._api.call("PATCH", self._path(ref), {**body, "metadata": metadata})
        except Refusal as refusal:
            if refusal.status != CONFLICT:
                raise
            return False
        return True

    def _delete(self, resource: Resource, ref: AttemptRef, name: str, **options: Any) -> None:
        try:
            self._api.call("DELETE", resource.path(self._namespace(ref), name), options)
        except Refusal as refusal:
            if refusal.status != CONFLICT and not self._is_missing(refusal, ref):
                raise

    def _path(self, ref: AttemptRef) -> str:
        return JOBS.path(self._namespace(ref), manifests.job_name(ref.attempt_id))

    def _namespace(self, ref: AttemptRef) -> str:
        return name_of(ref.namespace, self._cluster.prefix)


def together(refs: Sequence[AttemptRef]) -> Mapping[str, Sequence[AttemptRef]]:
    """Group the attempts by namespace. One attempt alone is observed on its own. Pure."""
    found: dict[str, list[AttemptRef]] = {}
    for ref in refs:
        found.setdefault(ref.namespace, []).append(ref)
    return {namespace: members for namespace, members in found.items() if len(members) > 1}


def _check(plan: LaunchPlan, cluster: manifests.Cluster) -> None:
    """Raise LaunchFailed for anything that the installation lacks."""
    if not (plan.image or cluster.image):
        raise LaunchFailed(messages.JOB_IMAGE_NOT_CONFIGURED())
    if any(one.role == contract.MASTER and not manifests.coordination_url(one) for one in plan.replicas):
        raise LaunchFailed(messages.ETCD_NOT_CONFIGURED())
    if not plan.agents and any(manifests.is_unmounted(one, cluster) for one in plan.replicas):
        raise LaunchFailed(messages.DATASET_NOT_MOUNTED())


def _suspended(seconds: int) -> Mapping[str, Any]:
    annotations = {names.GRACE_ANNOTATION: str(seconds)}
    return {"metadata": {"annotations": annotations}, "spec": {"runPolicy": {"suspend": True}}}


def _scaled(job: Object, role: str, replicas: int) -> Mapping[str, Any] | None:
    if views.replicas_of(job, role) == replicas:
        return None
    return {"spec": {manifests.ROLES[role]: {"replicas": replicas}}}


def _begun_again(job: Object, name: str, start_number: int) -> Mapping[str, Any] | None:
    """Return the patch that allows another start of the replica, and restores its place where that was removed."""
    place, role = manifests.place_of(name), name.rpartition("-")[0]
    desired = int(name.rpartition("-")[2]) + 1
    body: dict[str, Any] = {}
    if views.starts(job).get(place, 1) < start_number:
        body["starts"] = {place: start_number}
    if views.replicas_of(job, role) < desired:
        body[manifests.ROLES[role]] = {"replicas": desired}
    return {"spec": body} if body else None


def _granted(job: Object, limits: Mapping[str, int]) -> Mapping[str, Any] | None:
    """Return the patch of the starts granted in advance; None where the PaddleJob has none (``manifests``)."""
    current = views.max_starts(job)
    wanted = {manifests.place_of(name): limit for name, limit in limits.items()}
    if current is None or all(current.get(place, 0) == limit for place, limit in wanted.items()):
        return None
    return {"spec": {"maxStarts": {place: limit or None for place, limit in wanted.items()}}}


def _leaves_within(pod: Object, seconds: int) -> bool:
    seconds_given = pod["metadata"].get("deletionGracePeriodSeconds")
    return names.is_leaving(pod) and seconds_given is not None and int(seconds_given) <= seconds


@contextmanager
def _reachable() -> Iterator[None]:
    """Raise BackendUnavailable for a refusal of the API server; the next pass of the reconciler retries."""
    try:
        yield
    except Refusal as refusal:
        raise BackendUnavailable(messages.CLUSTER_REQUEST_FAILED(why=refusal.message)) from refusal


def _launch_failed(refusal: Refusal, namespace: str, *, missing: bool) -> LaunchFailed:
    passing = refusal.status in (0, CONFLICT, _TOO_MANY) or refusal.status >= _BROKEN
    if refusal.status == 0 or refusal.status >= _BROKEN:
        why = messages.CLUSTER_UNREACHABLE(why=refusal.message)
    elif missing:
        why = messages.CLUSTER_NOT_PREPARED(name=namespace, why=refusal.message)
    elif refusal.status == FORBIDDEN:
        why = messages.JOB_FORBIDDEN_BY_CLUSTER(name=namespace, why=refusal.message)
    else:
        why = messages.JOB_REJECTED_BY_CLUSTER(why=refusal.message)
    return LaunchFailed(why, retryable=passing)
