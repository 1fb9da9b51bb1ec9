"""A simulated cluster without an API server: it executes plans, and the test sets the states of its pods."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from jobs.operator.decide.plan import Plan, plan
from jobs.operator.model import names
from jobs.operator.model.actions import Action, Create, Delete, DeleteJob, Patch, PatchJob
from jobs.operator.model.conditions import written
from jobs.operator.model.observed import Observed, Settings

START = datetime(2026, 3, 1, tzinfo=UTC)
SUCCEEDED: Mapping[str, Any] = {"phase": "Succeeded"}


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "paddle", "image": "registry/train:1"}], **spec}}


def role(replicas: int, *, requests: int | None = None, limits: int | None = None, **spec: Any) -> dict[str, Any]:
    bounds = {key: value for key, value in (("requests", requests), ("limits", limits)) if value is not None}
    return {"replicas": replicas, "template": template(**spec), **bounds}


def paddle_job(name: str = "wd", **spec: Any) -> dict[str, Any]:
    """Return a PaddleJob as the API server returns it. A role may be a number of replicas."""
    roles = {key: role(spec.pop(key)) for key in names.ROLES if isinstance(spec.get(key), int)}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-of-{name}", "generation": 1}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": {**roles, **spec}}


def running(address: str = "10.0.0.1", **container: Any) -> dict[str, Any]:
    return {
        "phase": "Running",
        "podIP": address,
        "containerStatuses": [
            {"name": "paddle", "ready": True, "state": {"running": {}}, "restartCount": 0, **container}
        ],
    }


def failed(code: int = 1, reason: str = "", address: str = "10.0.0.1") -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "reason": "Error"}}
    return {
        "phase": "Failed",
        "podIP": address,
        "containerStatuses": [{"name": "paddle", "ready": False, "state": ended}],
        **({"reason": reason} if reason else {}),
    }


class World:
    """Simulated cluster with objects by (kind, name).

    A deletion takes effect at once, unless ``slow``: then the object has a deletion timestamp until ``reap``.
    """

    def __init__(self, job: dict[str, Any], settings: Settings | None = None, *, slow: bool = False) -> None:
        self.job = copy.deepcopy(job)
        self.settings = settings or Settings()
        self.slow = slow
        self.now = START
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.foreign: set[tuple[str, str]] = set()
        self.refusals: tuple[str, ...] = ()
        self.block: int | None = 35020
        self.job_is_gone = False
        self._uids = itertools.count(1)
        self._addresses = itertools.count(1)

    # Observed state
    def observed(self) -> Observed:
        return Observed(
            pods=self.of("Pod"),
            services=self.of("Service"),
            config_map=next(iter(self.of("ConfigMap")), None),
            pod_group=next(iter(self.of("PodGroup")), None),
            foreign=frozenset(self.foreign),
            refusals=self.refusals,
            block=self.block,
        )

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [copy.deepcopy(item) for (found, _), item in sorted(self.objects.items()) if found == kind]

    def pods(self) -> list[str]:
        return [names.name_of(pod) for pod in self.of("Pod")]

    @property
    def status(self) -> dict[str, Any]:
        return self.job.get("status") or {}

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    @property
    def config_data(self) -> dict[str, str] | None:
        return next((item["data"] for item in self.of("ConfigMap")), None)

    # Events
    def plan(self) -> Plan:
        return plan(copy.deepcopy(self.job), self.observed(), self.now, self.settings)

    def step(self) -> Plan:
        """Run one pass: plan, write the status, execute the actions."""
        made = self.plan()
        if made.status is not None:
            self.job["status"] = copy.deepcopy(made.status)
        self.do(made.actions)
        return made

    def remember(self, made: Plan) -> None:
        """Write the status if it must be written before the actions, or there are none."""
        if made.status is not None and (made.status_first or not made.actions):
            self.job["status"] = copy.deepcopy(made.status)

    def settle(self, limit: int = 8) -> int:
        """Run passes until nothing is left to do; return the number of passes that did something."""
        for passes in range(limit):
            made = self.plan()
            self.remember(made)
            self.do(made.actions)
            if not made.actions and made.status is None:
                return passes
        raise AssertionError(f"still something to do after {limit} passes: {made}")

    def do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case Create(body):
                key = (action.kind, action.name)
                assert key not in self.objects, f"{key} is there already"
                item: dict[str, Any] = copy.deepcopy(dict(body))
                item["metadata"] |= {"uid": f"u{next(self._uids)}", "creationTimestamp": written(self.now)}
                self.objects[key] = item
            case Delete(kind, name, uid, grace):
                if self.objects.get((kind, name), {}).get("metadata", {}).get("uid") == uid:
                    self._delete(kind, name, grace == 0)
            case Patch(kind, name, change):
                self.objects[kind, name] = merge(self.objects[kind, name], change)
            case PatchJob(change):
                self.job = merge(self.job, change)
            case DeleteJob():
                self.job_is_gone = True

    def _delete(self, kind: str, name: str, force: bool) -> None:
        if self.slow and kind == "Pod" and not force:
            self.objects[kind, name]["metadata"]["deletionTimestamp"] = written(self.now)
        else:
            del self.objects[kind, name]

    def reap(self) -> None:
        leaving = [key for key, item in self.objects.items() if names.is_leaving(item)]
        for key in leaving:
            del self.objects[key]

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def change(self, change: Mapping[str, Any]) -> None:
        """Edit the job, as a user does."""
        self.job = merge(self.job, change)
        self.job["metadata"]["generation"] += 1

    def pod(self, name: str, status: Mapping[str, Any], node: str = "node1") -> None:
        """Put a pod on a node and in a state."""
        item = self.objects["Pod", name]
        item["spec"]["nodeName"] = node
        # A pod keeps its address.
        own = item.get("status", {}).get("podIP")
        item["status"] = {**status, "podIP": own or f"10.0.0.{next(self._addresses)}"}

    def all_pods(self, status: Mapping[str, Any], only: str = "") -> None:
        for _, name in [key for key in self.objects if key[0] == "Pod" and only in key[1]]:
            self.pod(name, status)

    def lose(self, name: str) -> None:
        """Delete a pod, as another client does."""
        del self.objects["Pod", name]

    def up(self) -> World:
        """Create all objects and run all pods."""
        self.settle()
        self.all_pods(running())
        self.settle()
        return self


def merge(item: Any, change: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    merged = dict(item) if isinstance(item, Mapping) else {}
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged
