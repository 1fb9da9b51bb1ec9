"""The cache of the cluster's objects."""

from __future__ import annotations

from typing import Any

from jobs.operator.client.cache import Cache
from jobs.operator.client.transform import trimmed


def pod(name: str = "p", version: int = 1, uid: str = "u", owner: str = "j", **status: Any) -> dict[str, Any]:
    owners = [{"kind": "PaddleJob", "name": "job", "uid": owner, "controller": True}] if owner else []
    metadata = {"name": name, "namespace": "n", "uid": uid, "resourceVersion": str(version), "ownerReferences": owners}
    return {"metadata": metadata, "spec": {}, "status": status}


def phase(cache: Cache, name: str = "p") -> str | None:
    found = cache.get("Pod", "n", name)
    return found["status"].get("phase") if found else None


def test_an_older_object_changes_nothing() -> None:
    cache = Cache()
    cache.put("Pod", pod(version=7, phase="Running"))
    cache.put("Pod", pod(version=6, phase="Pending"))
    assert phase(cache) == "Running"


def test_a_deleted_object_never_comes_back() -> None:
    cache = Cache()
    cache.put("Pod", pod(version=7))
    cache.remove("Pod", pod(version=7))
    cache.put("Pod", pod(version=9))
    assert cache.get("Pod", "n", "p") is None


def test_another_object_of_the_name_is_another_object() -> None:
    cache = Cache()
    cache.put("Pod", pod(version=7, uid="old", owner="first"))
    cache.put("Pod", pod(version=9, uid="new", owner="second"))
    cache.remove("Pod", pod(version=7, uid="old"))
    assert cache.owned("first") == []
    assert [item["metadata"]["uid"] for item in cache.owned("second")] == ["new"]


def test_a_list_removes_what_it_does_not_have_but_not_what_came_after_it() -> None:
    cache = Cache()
    cache.put("Pod", pod("old", 3, "a"))
    cache.put("Pod", pod("young", 9, "b"))
    cache.replace("Pod", [pod("listed", 4, "c")], "5")
    assert [cache.get("Pod", "n", name) is not None for name in ("old", "young", "listed")] == [False, True, True]


def test_d11_children_are_found_by_their_owner_s_uid_and_not_by_its_name() -> None:
    cache = Cache()
    cache.put("Pod", pod("a", uid="a", owner="first"))
    cache.put("Pod", pod("b", uid="b", owner="second"))
    cache.put("Pod", pod("c", uid="c", owner=""))
    assert [item["metadata"]["name"] for item in cache.owned("first")] == ["a"]


def test_the_change_callback_gets_real_changes_alone() -> None:
    notified: list[tuple[str, str]] = []
    cache = Cache(lambda kind, item: notified.append((kind, item["metadata"]["name"])))
    cache.put("Pod", pod(version=7))
    cache.put("Pod", pod(version=7))
    cache.replace("Pod", [], "8")
    assert notified == [("Pod", "p"), ("Pod", "p")]


def test_a_cached_pod_has_only_the_fields_that_are_read() -> None:
    full = pod(phase="Running", podIP="10.0.0.1", hostIP="10.1.1.1", qosClass="Burstable")
    full["spec"] = {"nodeName": "node1", "containers": [{"name": "paddle", "image": "x"}], "volumes": []}
    full["metadata"] |= {
        "managedFields": [{"manager": "kubelet"}],
        "labels": {"batch.paddlepaddle.org/attempt": "1", "app": "x"},
    }
    full["status"]["containerStatuses"] = [
        {"name": "paddle", "ready": True, "imageID": "sha256:0", "state": {"running": {}}}
    ]
    stored = trimmed("Pod", full)
    assert stored["spec"] == {"nodeName": "node1"}
    assert stored["status"] == {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "containerStatuses": [{"name": "paddle", "ready": True, "state": {"running": {}}}],
    }
    assert stored["metadata"]["labels"] == {"batch.paddlepaddle.org/attempt": "1"}
    assert "managedFields" not in stored["metadata"]
