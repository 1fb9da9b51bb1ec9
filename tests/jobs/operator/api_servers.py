"""In-memory API servers, each named after its failure. No time passes: a watch returns past events and ends."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from jobs.operator.client.api import Refusal
from jobs.operator.client.resources import NAMESPACES, RESOURCES, Resource
from jobs.operator.model import names
from jobs.operator.model.names import Object
from tests.jobs.operator.world import merge

Path = tuple[Resource, str, str, str]  # namespace, name, subresource


class FaithfulServer:
    """API server with versions, preconditions, owners, and watches from a version on."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.history: list[tuple[int, str, str, dict[str, Any]]] = []  # version, kind, type, object
        self.calls: list[tuple[str, str]] = []
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()

    # --- Interface ---------------------------------------------------------------------------------------------------
    def call(
        self, method: str, path: str, body: Object | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        with self._lock:
            self.calls.append((method, path))
            answer: dict[str, Any] = copy.deepcopy(
                getattr(self, method.lower())(_parsed(path), body or {}, query or {})
            )
            return answer

    def watch(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[dict[str, Any]]:
        with self._lock:
            self.calls.append(("WATCH", path))
            resource = _parsed(path)[0]
            since = int(query["resourceVersion"])
            events = [
                {"type": what, "object": copy.deepcopy(item)}
                for version, kind, what, item in self.history
                if version > since and kind == resource.kind
            ]
        yield from events
        yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}}

    @property
    def version(self) -> int:
        return self.history[-1][0] if self.history else 0

    # --- Verbs -------------------------------------------------------------------------------------------------------
    def get(self, where: Path, body: Object, query: Mapping[str, str]) -> dict[str, Any]:
        resource, namespace, name, _ = where
        if name:
            return self._found(resource, namespace, name)
        items = [
            item
            for (kind, of, _), item in sorted(self.objects.items())
            if kind == resource.kind and of.startswith(namespace)
        ]
        begin, size = int(query.get("continue", 0)), int(query.get("limit", 500))
        rest = {"continue": str(begin + size)} if begin + size < len(items) else {}
        return {"items": items[begin : begin + size], "metadata": {"resourceVersion": str(self.version), **rest}}

    def post(self, where: Path, body: Object, query: Mapping[str, str]) -> dict[str, Any]:
        resource, namespace, _, _ = where
        key = (resource.kind, namespace, names.name_of(body))
        if key in self.objects:
            raise Refusal(409, "AlreadyExists", f"{key[2]} already exists")
        item: dict[str, Any] = copy.deepcopy(dict(body))
        item["metadata"] |= {"uid": f"uid-{next(self._numbers)}", "namespace": namespace}
        return self._store(key, item, "ADDED")

    def put(self, where: Path, body: Object, query: Mapping[str, str]) -> dict[str, Any]:
        resource, namespace, name, subresource = where
        found = self._found(resource, namespace, name)
        if body["metadata"].get("resourceVersion") not in (None, found["metadata"]["resourceVersion"]):
            raise Refusal(409, "Conflict", "the object has been modified")
        changed = {**found, "status": body["status"]} if subresource == "status" else copy.deepcopy(dict(body))
        return self._store((resource.kind, namespace, name), copy.deepcopy(changed), "MODIFIED")

    def patch(self, where: Path, body: Object, query: Mapping[str, str]) -> dict[str, Any]:
        resource, namespace, name, _ = where
        found = self._found(resource, namespace, name)
        if body.get("metadata", {}).get("resourceVersion") not in (None, found["metadata"]["resourceVersion"]):
            raise Refusal(409, "Conflict", "the object has been modified")
        return self._store((resource.kind, namespace, name), merge(found, body), "MODIFIED")

    def delete(self, where: Path, body: Object, query: Mapping[str, str]) -> dict[str, Any]:
        resource, namespace, name, _ = where
        found = self._found(resource, namespace, name)
        if body.get("preconditions", {}).get("uid") not in (None, found["metadata"]["uid"]):
            raise Refusal(409, "Conflict", "the UID in the precondition does not match")
        self.drop(resource.kind, namespace, name)
        return {"kind": "Status", "status": "Success"}

    # --- Changes by others -------------------------------------------------------------------------------------------
    def submit(self, job: Object) -> None:
        self.call("POST", RESOURCES[names.KIND].path("team"), {**job, "metadata": {**job["metadata"], "uid": ""}})

    def drop(self, kind: str, namespace: str, name: str) -> None:
        item = self.objects.pop((kind, namespace, name))
        with self._lock:
            self._note(kind, "DELETED", item)

    def set_pod_status(self, status: Mapping[str, Any]) -> None:
        """Give all pods a node, an address and a status."""
        for number, key in enumerate(sorted(key for key in self.objects if key[0] == "Pod"), 1):
            item = copy.deepcopy(self.objects[key])
            item["spec"]["nodeName"] = "node1"
            item["status"] = {**status, "podIP": f"10.0.0.{number}"}
            self._store(key, item, "MODIFIED")

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [copy.deepcopy(item) for key, item in sorted(self.objects.items()) if key[0] == kind]

    def count(self, method: str, plural: str) -> int:
        return sum(1 for verb, path in self.calls if verb == method and f"/{plural}" in path)

    # --- Internals ---------------------------------------------------------------------------------------------------
    def _found(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        try:
            return self.objects[resource.kind, namespace, name]
        except KeyError:
            raise Refusal(404, "NotFound", f"{resource.plural} {name} not found") from None

    def _store(self, key: tuple[str, str, str], item: dict[str, Any], what: str) -> dict[str, Any]:
        known = self.objects.get(key)
        if known is not None and {**item, "metadata": {**item["metadata"], "resourceVersion": ""}} == {
            **known,
            "metadata": {**known["metadata"], "resourceVersion": ""},
        }:
            return known  # nothing has changed: no event
        self.objects[key] = item
        with self._lock:
            self._note(key[0], what, item)
        return item

    def _note(self, kind: str, what: str, item: dict[str, Any]) -> None:
        version = self.version + 1
        item["metadata"]["resourceVersion"] = str(version)
        self.history.append((version, kind, what, copy.deepcopy(item)))


class ForgetfulServer(FaithfulServer):
    """API server with a compacted history: every watch from an older version returns 410."""

    def watch(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[dict[str, Any]]:
        if int(query["resourceVersion"]) < self.version:
            yield {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
            return
        yield from super().watch(path, query, seconds)


class BusyServer(FaithfulServer):
    """API server that answers 429 the given number of times, with Retry-After."""

    def __init__(self, times: int, retry_after: float | None = 7.0) -> None:
        super().__init__()
        self.times, self.retry_after = times, retry_after

    def call(
        self, method: str, path: str, body: Object | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        if self.times:
            self.times -= 1
            raise Refusal(429, "TooManyRequests", "try again later", self.retry_after)
        return super().call(method, path, body, query)


class RefusingServer(FaithfulServer):
    """API server that refuses requests for which ``refuses`` is true, by verb and kind."""

    def __init__(self, refusal: Refusal, refuses: Callable[[str, str], bool]) -> None:
        super().__init__()
        self.refusal, self.refuses = refusal, refuses

    def call(
        self, method: str, path: str, body: Object | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        if self.refuses(method, _parsed(path)[0].kind):
            raise self.refusal
        return super().call(method, path, body, query)


class ForbiddingServer(FaithfulServer):
    """API server that answers 403 outside the namespaces where the account has rights, as the portal's account gets it.

    It does so in a namespace that does not exist as well. The account may read every namespace itself. ``existing`` and
    ``granted``: names of namespaces; by default the account has rights in all that exist.
    """

    def __init__(self, existing: Collection[str] = (), granted: Collection[str] | None = None) -> None:
        super().__init__()
        self._granted = existing if granted is None else granted
        for name in existing:
            self.post((NAMESPACES, "", "", ""), {"metadata": {"name": name}}, {})

    def call(
        self, method: str, path: str, body: Object | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        namespace, _, inside = path.partition("/namespaces/")[2].partition("/")
        if inside and namespace not in self._granted:
            self.calls.append((method, path))
            raise Refusal(403, "Forbidden", f'{inside} is forbidden in the namespace "{namespace}"')
        return super().call(method, path, body, query)


class SilentServer(FaithfulServer):
    """API server that executes all requests but sends no events: its watches are empty."""

    def watch(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[dict[str, Any]]:
        yield from ()


class QuietServer(FaithfulServer):
    """API server with empty watches that last: ``linger`` advances the time."""

    def __init__(self) -> None:
        super().__init__()
        self.linger: Callable[[], None] = lambda: None

    def watch(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[dict[str, Any]]:
        self.linger()
        yield from ()


class LivingServer(FaithfulServer):
    """API server whose watches wait for new events."""

    def __init__(self) -> None:
        super().__init__()
        self._news = threading.Condition(self._lock)

    def watch(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[dict[str, Any]]:
        since = int(query["resourceVersion"])
        with self._news:
            self._news.wait_for(lambda: self.version > since, timeout=seconds)
        yield from super().watch(path, query, seconds)

    def _note(self, kind: str, what: str, item: dict[str, Any]) -> None:
        super()._note(kind, what, item)
        self._news.notify_all()


class ForgettingAnswersServer(FaithfulServer):
    """API server that executes a write and then breaks the connection, the given number of times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def call(
        self, method: str, path: str, body: Object | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        answer = super().call(method, path, body, query)
        if method in ("POST", "DELETE", "PATCH", "PUT") and self.times:
            self.times -= 1
            raise Refusal(0, "Unreachable", "the connection was reset")
        return answer


def _parsed(path: str) -> Path:
    for resource in (*RESOURCES.values(), NAMESPACES):
        if path.startswith(f"{resource.prefix}/"):
            parts = path.removeprefix(f"{resource.prefix}/").split("/")
            namespace = parts.pop(1) if parts[0] == "namespaces" and len(parts) > 2 else ""
            parts = parts[1:] if namespace else parts
            if parts[0] == resource.plural:
                name, subresource = [*parts[1:], "", ""][:2]
                return resource, namespace, name, subresource
    raise Refusal(404, "NotFound", f"no such path: {path}")
