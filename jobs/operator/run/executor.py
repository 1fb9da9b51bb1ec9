"""Executor of the actions of a plan, with concurrent requests; it collects the refusals of the API server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from jobs.operator.client.api import CONFLICT, MISSING, KubeApi, Refusal
from jobs.operator.client.cache import Cache, owner_uid
from jobs.operator.client.metrics import Metrics
from jobs.operator.client.resources import JOBS, RESOURCES
from jobs.operator.model import names
from jobs.operator.model.actions import Action, Create, Delete, DeleteJob, Patch, PatchJob
from jobs.operator.model.names import Object


@dataclass(frozen=True)
class Outcome:
    """Result of the actions. ``done``: names by verb and kind. ``foreign``: objects of others with names of the job."""

    done: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    foreign: frozenset[tuple[str, str]] = frozenset()
    refusals: tuple[Refusal, ...] = ()


class Foreign(Exception):
    """An object with this name exists and belongs to another owner."""


class Executor:
    """Executor of actions. ``pool``: its size is the number of concurrent requests for all jobs together."""

    def __init__(self, api: KubeApi, cache: Cache, metrics: Metrics, pool: ThreadPoolExecutor) -> None:
        self._api, self._cache, self._metrics, self._pool = api, cache, metrics, pool

    def write_status(self, job: Object, status: Object) -> Object:
        """Write the status; return the job with it. Raises Refusal; CONFLICT: the job has changed since it was read."""
        namespace, name = job["metadata"]["namespace"], names.name_of(job)
        written = self._api.call("PUT", JOBS.path(namespace, name, "status"), {**job, "status": status})
        self._cache.put(names.KIND, written)
        return written

    def execute(self, job: Object, actions: Sequence[Action]) -> Outcome:
        """Execute deletions, then the other actions. All actions are tried, even if some are refused."""
        deletions = [action for action in actions if isinstance(action, Delete)]
        others = [action for action in actions if not isinstance(action, Delete)]
        done: dict[tuple[str, str], list[str]] = defaultdict(list)
        foreign, refusals = set(), []
        for action, problem in [*self._together(job, deletions), *self._together(job, others)]:
            verb, kind, name = type(action).__name__, _kind(action), _name(action)
            self._metrics.actions.labels(verb, kind, type(problem).__name__ if problem else "done").inc()
            if problem is None:
                done[verb, kind].append(name)
            elif isinstance(problem, Refusal):
                refusals.append(problem)
            else:
                foreign.add((kind, name))
        return Outcome(dict(done), frozenset(foreign), tuple(refusals))

    def still_foreign(self, job: Object, found: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Return the objects of ``found`` that exist and do not belong to the job. Raises Refusal."""
        return frozenset(key for key in found if self._belongs_to_others(job, *key))

    def _together(self, job: Object, actions: Sequence[Action]) -> Iterator[tuple[Action, Refusal | Foreign | None]]:
        if len(actions) == 1:
            yield actions[0], self._try(job, actions[0])
        elif actions:
            yield from zip(actions, self._pool.map(lambda action: self._try(job, action), actions), strict=True)

    def _try(self, job: Object, action: Action) -> Refusal | Foreign | None:
        try:
            self._do(job, action)
        except (Refusal, Foreign) as problem:
            return problem
        return None

    def _do(self, job: Object, action: Action) -> None:
        namespace = job["metadata"]["namespace"]
        match action:
            case Create(body):
                self._create(job, action.kind, body)
            case Delete(kind, name, uid, grace):
                self._delete(kind, namespace, name, uid, grace)
            case Patch(kind, name, change):
                self._cache.put(kind, self._api.call("PATCH", RESOURCES[kind].path(namespace, name), change))
            case PatchJob(change):
                # With the version that was read: a patch replaces lists, such as the finalizers, as a whole.
                version = {"resourceVersion": job["metadata"]["resourceVersion"]}
                body = {**change, "metadata": {**change.get("metadata", {}), **version}}
                path = JOBS.path(namespace, names.name_of(job))
                self._cache.put(names.KIND, self._api.call("PATCH", path, body))
            case DeleteJob():
                self._delete(names.KIND, namespace, names.name_of(job), names.uid_of(job), None)

    def _create(self, job: Object, kind: str, body: Object) -> None:
        namespace = job["metadata"]["namespace"]
        try:
            made = self._api.call("POST", RESOURCES[kind].path(namespace), body)
        except Refusal as refusal:
            if refusal.status != CONFLICT or refusal.reason != "AlreadyExists":
                raise
            if self._belongs_to_others(job, kind, names.name_of(body)):
                raise Foreign from refusal
            return  # it was created just before, and is in the cache now
        self._cache.put(kind, made)

    def _belongs_to_others(self, job: Object, kind: str, name: str) -> bool:
        try:
            found = self._api.call("GET", RESOURCES[kind].path(job["metadata"]["namespace"], name))
        except Refusal as refusal:
            if refusal.status == MISSING:
                return False
            raise
        if owner_uid(found) != names.uid_of(job):
            return True
        self._cache.put(kind, found)
        return False

    def _delete(self, kind: str, namespace: str, name: str, uid: str, grace: int | None) -> None:
        options: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        gone: dict[str, Any] = {"metadata": {"name": name, "namespace": namespace, "uid": uid}}
        try:
            answer = self._api.call("DELETE", RESOURCES[kind].path(namespace, name), options)
        except Refusal as refusal:
            if refusal.status not in (MISSING, CONFLICT):
                raise
            self._cache.remove(kind, gone)  # missing, or another object has its name by now
            return
        if answer.get("metadata", {}).get("deletionTimestamp"):
            self._cache.put(kind, answer)
        else:
            self._cache.remove(kind, gone)


def _kind(action: Action) -> str:
    return names.KIND if isinstance(action, DeleteJob | PatchJob) else action.kind


def _name(action: Action) -> str:
    return "" if isinstance(action, DeleteJob | PatchJob) else action.name
