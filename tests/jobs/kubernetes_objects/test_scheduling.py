"""Capacity of nodes and requests of pods, from objects of the API server."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.kubernetes_objects.scheduling import Needs, NodeInfo, PodInfo, Taint, condensed, matches, quantity

MIB = 2**20


def node(**parts: Any) -> NodeInfo:
    status = {"allocatable": {"cpu": "2", "memory": "1Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}
    item = {"metadata": {"name": "n1", "labels": {"zone": "a", "rank": "7"}}, "spec": {}, "status": status, **parts}
    info = condensed("Node", item)["seen"]
    assert isinstance(info, NodeInfo)
    return info


def pod(spec: dict[str, Any], **metadata: Any) -> PodInfo:
    info = condensed("Pod", {"metadata": {"name": "p", "namespace": "team", **metadata}, "spec": spec})["seen"]
    assert isinstance(info, PodInfo)
    return info


def requests(cpu: str, memory: str = "0", **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, "memory": memory, **more.pop("extended", {})}}, **more}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("2", 2), ("0.5", 0.5), (".5", 0.5), ("1500m", 1.5), ("100n", 1e-7), ("12u", 12e-6), ("3e2", 300)),
        *(("1k", 1000), ("2M", 2e6), ("8389180Ki", 8389180 * 1024), ("1.5Gi", 1.5 * 2**30), ("1Ei", 2**60)),
        *(("", 0), ("much", 0), (4, 4)),
    ],
)
def test_a_quantity_is_read_as_kubernetes_writes_it(text: object, value: float) -> None:
    assert float(quantity(text)) == pytest.approx(value)


def test_a_pod_requests_the_sum_of_its_containers() -> None:
    info = pod({"containers": [requests("250m", "64Mi"), requests("1", "64Mi", extended={"nvidia.com/gpu": "2"}), {}]})
    assert info.needs == Needs(1250, 128 * MIB, (("nvidia.com/gpu", 2),))


def test_what_runs_before_the_containers_counts_where_it_needs_more() -> None:
    first = [requests("2", "8Mi"), requests("100m", "8Mi", restartPolicy="Always"), requests("300m", "500Mi")]
    assert pod({"initContainers": first, "containers": [requests("1", "64Mi")]}).needs == Needs(2000, 508 * MIB)


def test_a_sandbox_and_a_pod_s_own_request_count() -> None:
    own = {"containers": [requests("1")], "resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "250m"}}
    assert pod(own).needs.cpu == 3250


def test_a_pod_has_its_owner_and_a_deployment_its_own_name() -> None:
    def owned(kind: str, name: str, **labels: str) -> tuple[str, str]:
        info = pod({}, ownerReferences=[{"kind": kind, "name": name, "controller": True}], labels=labels)
        return info.kind, info.owner

    assert owned("ReplicaSet", "web-5f6d", **{"pod-template-hash": "5f6d"}) == ("Deployment", "web")
    assert owned("ReplicaSet", "web-5f6d") == ("ReplicaSet", "web-5f6d")
    assert owned("StatefulSet", "db") == ("StatefulSet", "db")
    assert (pod({}).kind, pod({}).owner) == ("", "")


def test_a_node_that_is_cordoned_or_not_ready_is_closed_to_everybody() -> None:
    everything = pod({"tolerations": [{"operator": "Exists"}]}).tolerations
    silent = {"allocatable": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": "Unknown"}]}
    for closed in (node(spec={"unschedulable": True}), node(status=silent)):
        assert not all(any(each.covers(taint) for each in everything) for taint in closed.taints)
    assert node().taints == frozenset()


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "value": "a"}, True),
        ({"key": "team", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "a", "effect": "NoExecute"}, False),
        ({"key": "team", "value": "b"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations_are_those_of_kubernetes(toleration: dict[str, str], covered: bool) -> None:
    (one,) = pod({"tolerations": [toleration]}).tolerations
    assert one.covers(Taint("team", "a", "NoSchedule")) is covered


def test_a_prefer_no_schedule_taint_keeps_no_pod_away() -> None:
    assert not node(spec={"taints": [{"key": "team", "effect": "PreferNoSchedule"}]}).taints


def chooses(*terms: list[tuple[str, str, list[str]]], **labels: str) -> bool:
    expressions = [{"matchExpressions": [{"key": k, "operator": o, "values": v} for k, o, v in term]} for term in terms]
    required = (
        {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": expressions}} if expressions else {}
    )
    return matches(pod({"nodeSelector": labels, "affinity": {"nodeAffinity": required}}).selector, node())


def test_a_pod_goes_where_its_selector_and_one_of_the_terms_of_its_affinity_let_it() -> None:
    assert chooses()
    assert chooses(zone="a")
    assert not chooses(zone="b")
    assert chooses([("zone", "In", ["b"])], [("rank", "Gt", ["6"])])
    assert not chooses([("rank", "Lt", ["7"])])
    assert not chooses([("zone", "Exists", [])], zone="b")
    assert chooses([("zone", "NotIn", ["b"]), ("gone", "DoesNotExist", [])])
    assert not chooses([("zone", "Resembles", ["a"])])
