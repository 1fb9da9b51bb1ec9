"""In-memory API servers that refuse reads of Secrets."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from jobs.operator.client.api import Refusal
from jobs.operator.model.names import Object
from tests.jobs.operator.world import merge


class SecretiveServer:
    """API server of objects by path. It refuses reads of Secrets, as the real one does for the portal."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []

    def call(
        self, method: str, path: str, body: Object | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        self.calls.append((method, path))
        if method == "GET" and "/secrets" in path:
            raise Refusal(403, "Forbidden", "secrets")
        return copy.deepcopy(getattr(self, method.lower())(path, body, query or {}))  # type: ignore[no-any-return]

    def watch(self, path: str, query: Mapping[str, str], seconds: float) -> Any:
        raise NotImplementedError

    def get(self, path: str, body: Object | None, query: Mapping[str, str]) -> Any:
        if path in self.objects:
            return self.objects[path]
        below = [item for where, item in self.objects.items() if where.rpartition("/")[0] == path]
        if path.rpartition("/")[2] in ("namespaces", "paddlejobs", "pods"):
            labels = dict(pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair)
            return {"items": [i for i in below if labels.items() <= i["metadata"].get("labels", {}).items()]}
        raise Refusal(404, "NotFound", path)

    def apply(self, path: str, body: Object | None, query: Mapping[str, str]) -> Any:
        assert query == {"fieldManager": "regatta", "force": "true"}
        assert body is not None
        self.objects[path] = merge(self.objects.get(path, {}), body)
        return self.objects[path]

    def put(self, path: str, body: Object | None, query: Mapping[str, str]) -> Any:
        assert body is not None
        metadata = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
        self.objects[path] = {**body, "metadata": metadata}
        return self.objects[path]

    def delete(self, path: str, body: Object | None, query: Mapping[str, str]) -> Any:
        if path not in self.objects:
            raise Refusal(404, "NotFound", path)
        for where in [where for where in self.objects if where == path or where.startswith(f"{path}/")]:
            del self.objects[where]
        return {}

    @property
    def written(self) -> list[str]:
        return [path for method, path in self.calls if method in ("APPLY", "PUT")]


class SettlingServer(SecretiveServer):
    """API server that does not apply a new binding at first: it refuses so many requests in the new namespace.

    An account may write the namespace itself and the binding from the beginning.
    """

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def call(
        self, method: str, path: str, body: Object | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        _, _, inside = path.partition("/namespaces/")[2].partition("/")
        if self.times and inside and not inside.startswith("rolebindings"):
            self.times -= 1
            raise Refusal(403, "Forbidden", inside)
        return super().call(method, path, body, query)

    def apply(self, path: str, body: Object | None, query: Mapping[str, str]) -> Any:
        made = super().apply(path, body, query)
        made["metadata"].setdefault("creationTimestamp", datetime.now(UTC).isoformat())
        return made
