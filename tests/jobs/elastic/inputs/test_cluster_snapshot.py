"""Conversion of nodes and pods to the input of a policy, by vectors and with the policy itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from jobs.elastic.inputs.cluster_snapshot import Snapshot, Wanted, snapshot, within
from jobs.elastic.inputs.service_demand import REMEMBERED, DemandHistory
from jobs.elastic.policy.model import NOTHING, UNLIMITED, Amounts, Cluster, Job, Node
from jobs.elastic.policy.policy import Rules, decide, headroom
from jobs.kubernetes_objects.scheduling import Needs, NodeInfo, Placement, PodInfo, Taint, Toleration
from jobs.messages import elastic as elastic_messages
from runtime.messages import training as training_messages

MB = 10**6
CORE = Needs(1000, 100 * MB)
ONE = Amounts(1000, 100)
GPU = "nvidia.com/gpu"
# The rules of the controller.
RULES = Rules(shortest_run=inf)


def node(name: str, cores: int = 4, taints: frozenset[Taint] = frozenset(), **labels: str) -> NodeInfo:
    return NodeInfo(name, Needs(cores * 1000, 64_000 * MB), taints, labels)


def pod(name: str, on: str = "", kind: str = "", owner: str = "", namespace: str = "shop", **more: object) -> PodInfo:
    return PodInfo(namespace, name, on, **{"needs": CORE, "kind": kind, "owner": owner, **more})  # type: ignore[arg-type]


def web(count: int, *bound: str, owner: str = "web", **more: object) -> list[PodInfo]:
    """Return pods of a Deployment. The first ones are bound to the given nodes."""
    nodes = [*bound, *[""] * (count - len(bound))]
    return [pod(f"{owner}-{n}", on, "Deployment", owner, **more) for n, on in enumerate(nodes)]


def job(trainers: int, key: str = "a", core: Amounts = NOTHING) -> Wanted:
    return Wanted(key, ("team", f"attempt-{key}"), {"master": (int(core != NOTHING), core), "worker": (trainers, ONE)})


def replica(index: int, on: str = "", key: str = "a", role: str = "worker", **more: object) -> PodInfo:
    place = f"attempt-{key}"
    return pod(f"{place}-{role}-{index}", on, "PaddleJob", place, "team", **more)


def seen(nodes: list[NodeInfo], pods: list[PodInfo], *wanted: Wanted) -> Snapshot:
    return snapshot(nodes, pods, wanted, GPU)


# --- Foreign pods -----------------------------------------------------------------------------------------------------
def test_pods_of_a_replicated_owner_are_a_service() -> None:
    (service,) = seen([node("n1")], web(3, "n1", "n1", priority=5)).services
    assert (service.key, service.wanted, service.bound, service.missing) == ("shop/web", 3, {"n1": 2}, 1)
    assert service.need == ONE


def test_all_other_pods_take_what_they_take_from_their_nodes() -> None:
    others = [pod("bare", "n1"), pod("log", "n1", "DaemonSet", "log"), pod("batch", "n2", "Job", "batch")]
    found = seen([node("n1"), node("n2")], [*others, pod("done", "n2", over=True)])
    assert {each.name: each.taken for each in found.nodes} == {"n1": ONE.times(2), "n2": ONE}
    assert not found.services


def test_a_pending_daemon_needs_no_capacity_on_other_nodes_and_a_bare_pod_does() -> None:
    waiting = [pod("log", kind="DaemonSet", owner="log"), pod("bare", priority=3)]
    (alone,) = seen([node("n1")], waiting).services
    assert (alone.wanted, alone.missing) == (1, 1)


def test_what_goes_will_be_free_soon() -> None:
    found = seen([node("n1", 2)], web(2, "n1", "n1", leaving=True), job(0))
    assert [service.leaving for service in found.services] == [{"n1": ONE.times(2)}]
    assert found.nodes[0].taken == NOTHING


def test_only_a_higher_priority_than_that_of_pods_of_jobs_comes_before_jobs() -> None:
    ours = [replica(0, "n1", priority=10)]
    above, same = (seen([node("n1")], [*web(1, priority=p), *ours], job(1)).services[0].priority for p in (11, 10))
    assert above > 1
    assert same <= -1, "no job has a lower one"


def test_pods_of_another_portal_are_not_ours() -> None:
    found = seen([node("n1")], [replica(0, "n1", key="b")], job(0))
    assert found.nodes[0].taken == ONE


# --- Own jobs ---------------------------------------------------------------------------------------------------------
def test_a_job_stands_where_its_pods_are() -> None:
    pods = [replica(0, "n1"), replica(1, "n2"), replica(0, "n2", role="master")]
    standing = seen([node("n1"), node("n2")], pods, job(2, core=ONE)).replicas["a"]
    assert (standing.trainers, standing.held, standing.leaving) == ({"n1": 1, "n2": 1}, {"n2": ONE}, {})


def test_a_stopping_replica_still_takes_its_capacity() -> None:
    pods = [replica(0, "n1"), replica(1, "n1"), replica(2, "n1", leaving=True)]
    standing = seen([node("n1")], pods, job(1)).replicas["a"]
    assert (standing.trainers, standing.leaving) == ({"n1": 1}, {"n1": ONE.times(2)})


def test_a_replica_without_a_node_is_placed_where_it_will_probably_go() -> None:
    found = seen([node("n1"), node("n2")], [*web(3, "n1", "n1", "n1"), replica(0)], job(5))
    assert found.replicas["a"].trainers == {"n1": 1, "n2": 4}


def test_a_replica_that_fits_nowhere_is_placed_where_others_then_free_capacity() -> None:
    pods = [replica(index, "n1", "a") for index in range(2)]
    found = seen([node("n1", 2)], pods, job(2), job(1, "b"))
    assert found.replicas["b"].trainers == {"n1": 1}
    decision = decide(cluster(found, a=2, b=1), 1000.0, RULES)
    assert decision.victims == {"a": {"n1": 1}}
    assert decision.messages["a"] == elastic_messages.SCALES_DOWN_FOR_OTHERS(
        before=2,
        trainers=training_messages.TRAINER_COUNT_ONE(count=1),
        beneficiary=elastic_messages.OTHER_STARTED_WORKLOADS(),
    )


def test_where_no_node_is_open_to_jobs_they_wait() -> None:
    tainted = node("n1", taints=frozenset({Taint("team", "x", "NoSchedule")}))
    standing = seen([tainted], [], job(2)).replicas["a"]
    assert (standing.trainers, standing.pending) == ({}, 2)


# --- Where pods may go ------------------------------------------------------------------------------------------------
def test_no_capacity_is_freed_for_a_service_on_nodes_that_it_does_not_tolerate_or_choose() -> None:
    taint = Taint("team", "x", "NoSchedule")
    nodes = [node("n1", 1, disk="slow"), node("n2", 1, frozenset({taint}), disk="fast")]
    chosen = ((("disk", "In", ("fast",)),),)
    tolerant = (Toleration("team", True, "", ""),)
    for service, made in (
        (web(1, priority=9), True),
        (web(1, priority=9, selector=chosen), False),
        (web(1, priority=9, selector=((("disk", "In", ("slow",)),),)), True),
        (web(1, priority=9, selector=chosen, tolerations=tolerant), False),
    ):
        found = seen(nodes, [*service, replica(0, "n1"), replica(1, "n2")], job(2))
        assert bool(decide(cluster(found, a=2, least=0), 1000.0, RULES).victims.get("a", {}).get("n1")) is made


def test_a_selector_of_one_keeps_no_other_away() -> None:
    picky = web(1, owner="picky", priority=9, selector=((("disk", "In", ("fast",)),),))
    found = seen([node("n1", 2)], [*picky, *web(1, priority=9)], job(1))
    decision = decide(cluster(found, a=1, most=5), 1000.0, RULES)
    assert decision.targets["a"] == 1, "the other service has its place, and one is left for the job's own trainer"


def cluster(found: Snapshot, least: int = 1, most: int = 9, **sizes: int) -> Cluster:
    """Return a cluster of running jobs that differ only in their numbers of trainers."""
    jobs = [
        Job(
            key,
            least,
            most,
            ONE,
            started=0.0,
            trainers=found.replicas[key].trainers,
            pending=found.replicas[key].pending,
            first=least,
            running=size,
            leaving=found.replicas[key].leaving,
            tolerates=found.tolerates,
        )
        for key, size in sizes.items()
    ]
    return Cluster(found.nodes, jobs, found.services)


def test_trainers_stop_for_a_waiting_service_of_higher_priority_and_for_no_other() -> None:
    trainers = [replica(index, "n1") for index in range(4)]
    for priority, left in ((1, 2), (0, 4)):
        found = seen([node("n1")], [*web(2, priority=priority), *trainers], job(4))
        assert decide(cluster(found, a=4), 1000.0, RULES).targets["a"] == left


# --- Capacity for jobs set by admins ----------------------------------------------------------------------------------
def cores(nodes: list[Node], taken: Mapping[str, Amounts]) -> dict[str, int]:
    return {n.name: n.allocatable.minus(n.taken).minus(taken.get(n.name, NOTHING)).cpu for n in nodes}


def test_jobs_share_no_more_than_the_limit_of_admins_on_whole_nodes_where_possible() -> None:
    nodes = [Node(name, Amounts(4000, 4000)) for name in ("n1", "n2", "n3")]
    taken = {"n2": Amounts(1000, 0)}
    limit = Amounts(5000, UNLIMITED, UNLIMITED)
    assert cores(within(nodes, taken, NOTHING, limit), taken) == {"n1": 0, "n2": 3000, "n3": 1000}
    assert cores(within(nodes, taken, Amounts(4000), limit), taken) == {"n1": 1000, "n2": 3000, "n3": 4000}
    assert within(nodes, taken, NOTHING, Amounts(UNLIMITED, UNLIMITED, UNLIMITED)) == nodes


# --- Demand history of services ---------------------------------------------------------------------------------------
def test_how_much_a_service_grew_is_learned_and_forgotten() -> None:
    demand_history, (service,) = DemandHistory(), seen([node("n1")], web(20, priority=1)).services
    rules = Rules(headroom=0.1, headroom_for=120)
    for now, wanted, kept in ((0, 20, 0), (1, 20, 0), (10, 50, 3), (100, 30, 3), (131, 30, 0)):
        (learned,) = demand_history.with_history([replace(service, wanted=wanted)], float(now))
        assert headroom(learned, float(now), rules) == kept
    assert learned.history == ((0.0, 20), (10.0, 50), (100.0, 30))
    (late,) = demand_history.with_history([replace(service, wanted=40)], 1000.0 + REMEMBERED)
    assert late.history == ((100.0, 30), (1000.0 + REMEMBERED, 40)), "the last number before is what it rose from"


def test_a_service_that_is_new_since_the_last_update_has_grown_and_a_removed_one_is_forgotten() -> None:
    demand_history, (service,) = DemandHistory(), seen([node("n1")], web(20, priority=1)).services
    assert demand_history.with_history([], 0.0) == []
    (learned,) = demand_history.with_history([service], 1.0)
    assert learned.history == ((0.0, 0), (1.0, 20))
    demand_history.with_history([], 2.0)
    (again,) = demand_history.with_history([service], 3.0)
    assert again.history == ((2.0, 0), (3.0, 20))


def test_a_new_version_of_a_service_is_no_growth_of_it() -> None:
    demand_history = DemandHistory()
    for old, new in ((4, 0), (3, 1), (1, 3), (0, 4)):
        pods = [*web(old, *["n1"] * old), *web(new, *["n2"] * new, needs=Needs(900, 100 * MB))]
        services = demand_history.with_history(seen([node("n1"), node("n2")], pods).services, float(new))
    assert [service.history for service in services] == [((0.0, 4),)]


# --- Where jobs may be ------------------------------------------------------------------------------------------------
POOL = Placement((Toleration("pool", False, "training", "NoSchedule"),), ((("pool", "In", ("training",)),),))
TAINTED = frozenset({Taint("pool", "training", "NoSchedule")})


def test_jobs_that_choose_nodes_of_their_own_go_there_alone() -> None:
    nodes = [node("common"), node("theirs", 2, TAINTED, pool="training")]
    found = snapshot(nodes, web(1, priority=5), [job(1)], GPU, POOL)
    assert found.replicas["a"].trainers == {"theirs": 1}
    open_to = {each.name: each.taints <= found.tolerates for each in found.nodes}
    assert open_to == {"common": False, "theirs": True}


def test_the_node_selector_of_jobs_does_not_exclude_others() -> None:
    nodes = [node("common"), node("theirs", 2, frozenset(), pool="training")]
    (service,) = snapshot(nodes, web(1, priority=5), [job(1)], GPU, POOL).services
    assert all(each.taints <= service.tolerates for each in snapshot(nodes, web(1), [job(1)], GPU, POOL).nodes)


def test_jobs_of_nodes_of_their_own_grow_into_these_and_no_further() -> None:
    nodes = [node("common", 8), node("theirs", 3, TAINTED, pool="training")]
    pods = [replica(0, "theirs")]
    found = snapshot(nodes, pods, [job(1)], GPU, POOL)
    running = Job("a", 1, 10, ONE, started=0.0, trainers=found.replicas["a"].trainers, tolerates=found.tolerates)
    decision = decide(Cluster(found.nodes, [running], found.services), 1000.0, RULES)
    assert decision.targets == {"a": 3}
