"""The state of a decision: changes keep nodes, limits and jobs in step, and a rollback restores all of them."""

from __future__ import annotations

from dataclasses import fields

from jobs.elastic.policy.allocation import Allocation, first_victim
from jobs.elastic.policy.model import UNLIMITED, Amounts, Cluster, Job, Node
from jobs.elastic.policy.namespace_limits import NamespaceLimits
from jobs.elastic.policy.parameters import Rules

ONE = Amounts(1000, 100)
LIMIT = Amounts(4000, UNLIMITED, UNLIMITED)


def allocation() -> Allocation:
    jobs = [
        Job("a", 1, 4, ONE, namespace="x", started=0.0, trainers={"n0": 2, "n1": 1}, held={"n1": ONE}),
        Job("b", 1, 4, ONE, namespace="y", started=0.0, trainers={"n0": 1}, priority=1),
        Job("c", 1, 4, ONE, namespace="y"),
    ]
    nodes = [Node(name, Amounts(4000, 64_000)) for name in ("n0", "n1")]
    return Allocation(Cluster(nodes, jobs, limits={"x": LIMIT}), 1000.0, Rules())


def values(state: Allocation) -> object:
    """Return what a rollback restores. Counts of zero are those of changes that were undone."""
    jobs = [
        {field.name: getattr(job, field.name) for field in fields(job) if field.name not in ("by_node", "stopped_for")}
        | {"by_node": {node.name: count for node, count in job.by_node.items()}}
        | {"stopped_for": {who: count for who, count in job.stopped_for.items() if count}}
        for job in state.jobs
    ]
    nodes = [(list(node.now), list(node.soon), set(node.jobs)) for node in state.free_capacity.nodes]
    limits = {namespace: list(left) for namespace, left in state.remaining_limits.remaining.items()}
    return jobs, nodes, limits, dict(state.preempted), state.stopping


def test_a_stopped_trainer_gives_its_amounts_back_to_its_node_and_its_namespace() -> None:
    state = allocation()
    job, node = state.jobs[0], state.free_capacity.nodes[0]
    state.stop(job, node, "`c`")
    assert (job.size, job.target, job.victims, job.stopped_for) == (2, 2, {node: 1}, {"`c`": 1})
    assert (node.now[0], node.soon[0]) == (1000, 2000)
    assert state.remaining_limits.remaining["x"][0] == 1000


def test_a_job_that_stops_whole_gives_back_its_other_replicas_too() -> None:
    state = allocation()
    state.preempt(state.jobs[0], "`c`")
    assert [node.soon[0] for node in state.free_capacity.nodes] == [3000, 4000]
    assert state.remaining_limits.remaining["x"] == list(LIMIT)
    assert not state.free_capacity.nodes[1].jobs


def test_a_rollback_restores_jobs_nodes_and_limits() -> None:
    state = allocation()
    state.stop(state.jobs[1], state.free_capacity.nodes[0], "`c`")
    before, savepoint = values(state), state.transaction.savepoint()
    state.stop(state.jobs[0], state.free_capacity.nodes[0], "`c`")
    state.preempt(state.jobs[0], "`c`")
    assert values(state) != before
    state.transaction.rollback(savepoint)
    assert values(state) == before


def test_a_trainer_starts_now_only_where_there_is_capacity_now() -> None:
    state = allocation()
    job, node = state.jobs[1], state.free_capacity.nodes[0]
    state.start(job, node)
    state.start(job, node)
    assert (state.grants, job.planned, job.target) == ({job: {"n0": 1}}, 1, 3)


def test_a_waiting_job_grows_only_once_it_has_a_place() -> None:
    state = allocation()
    waiting = state.jobs[2]
    assert not state.may_grow(waiting)
    waiting.begins = False
    assert state.may_grow(waiting)


def test_the_first_victim_has_the_lowest_priority_and_there_may_be_none() -> None:
    state = allocation()
    assert first_victim(state.jobs[:2]) is state.jobs[0]
    assert first_victim([]) is None


def test_a_job_gives_up_a_trainer_on_the_node_with_most_of_them() -> None:
    assert allocation().jobs[0].fullest_node().name == "n0"


def test_only_namespaces_with_a_limit_are_limited() -> None:
    running = Job("a", 1, 4, ONE, namespace="x", started=0.0, trainers={"n0": 3})
    limits = NamespaceLimits(Cluster([], [running], limits={"x": LIMIT}))
    assert limits.allow("x", ONE)
    limits.take("x", ONE)
    assert not limits.allow("x", ONE)
    assert limits.allow("y", ONE) and limits.allow(None, ONE)
    limits.give_back("x", ONE)
    assert limits.allow("x", ONE)
