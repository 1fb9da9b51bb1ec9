"""The scaling policy: admission, growth and preemption by example, and properties of every cluster."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.elastic.policy.fair_share import useful
from jobs.elastic.policy.model import NOTHING, UNLIMITED, Amounts, Cluster, Core, Decision, Job, Node, Service, total
from jobs.elastic.policy.policy import Rules, decide, headroom
from jobs.messages import elastic as elastic_messages
from runtime.messages import training as training_messages
from tests.messages import mentions
from tests.properties import examples

ONE = Amounts(1000, 100)
NOW = 1000.0
PREEMPTING = Rules(preempts=True)


def nodes(count: int, cores: int = 4, gpus: int = 0) -> list[Node]:
    return [Node(f"n{number}", Amounts(cores * 1000, 64_000, gpus)) for number in range(count)]


def waits(key: str, least: int = 1, most: int = 10, need: Amounts = ONE, **more: object) -> Job:
    return Job(key, least, most, need, submitted=900.0, **more)  # type: ignore[arg-type]


def runs(key: str, trainers: Mapping[str, int], least: int = 1, most: int = 10, **more: object) -> Job:
    there = {"started": 0.0, "running": sum(trainers.values()), "trainers": trainers, "trainer": ONE, **more}
    return Job(key, least, most, **there)  # type: ignore[arg-type]


# --- Growing ----------------------------------------------------------------------------------------------------------
def test_jobs_grow_into_what_is_idle_and_share_it() -> None:
    decision = decide(Cluster(nodes(2), [runs("a", {"n0": 1}), runs("b", {"n1": 1})]), NOW)
    assert decision.targets == {"a": 4, "b": 4}
    assert decision.messages["a"] == elastic_messages.SCALES_UP(
        before=1, trainers=training_messages.TRAINER_COUNT(count=4)
    )


def test_the_smallest_job_grows_first_until_all_have_the_same() -> None:
    decision = decide(Cluster(nodes(2), [runs("a", {"n0": 3}), runs("b", {"n1": 1})]), NOW)
    assert decision.targets == {"a": 4, "b": 4}


def test_a_higher_priority_has_twice_the_share() -> None:
    jobs = [runs("a", {"n0": 1}, priority=1), runs("b", {"n1": 1})]
    assert decide(Cluster(nodes(3), jobs), NOW).targets == {"a": 8, "b": 4}


def test_shares_stay_in_proportion_however_far_jobs_grow_at_once() -> None:
    jobs = [runs("a", {"n0": 1}, most=500, priority=1), runs("b", {"n0": 1}, most=500), runs("c", {"n0": 1}, most=20)]
    assert decide(Cluster(nodes(1, cores=320), jobs), NOW).targets == {"a": 200, "b": 100, "c": 20}


def test_a_namespace_has_no_larger_share_for_having_more_jobs() -> None:
    jobs = [runs("a", {"n0": 1}, namespace="x")] + [runs(key, {"n1": 1}, namespace="y") for key in "bc"]
    assert decide(Cluster(nodes(2), jobs), NOW).targets == {"a": 4, "b": 2, "c": 2}


def test_no_job_grows_beyond_its_useful_number_of_trainers() -> None:
    job = runs("a", {"n0": 2}, speeds={1: 100.0, 2: 190.0, 4: 195.0})
    decision = decide(Cluster(nodes(2), [job]), NOW)
    assert decision.targets == {"a": 2}
    assert decision.messages["a"] == elastic_messages.KEEPS_NO_BENEFIT(
        trainers=training_messages.TRAINER_COUNT(count=2)
    )


@pytest.mark.parametrize(
    ("speeds", "expected"), [({}, 10), ({1: 10.0, 2: 20.0, 4: 40.0}, 10), ({1: 10.0, 4: 30.0, 8: 31.0}, 4)]
)
def test_the_useful_number_is_where_more_add_next_to_nothing(speeds: dict[int, float], expected: int) -> None:
    assert useful(replace(waits("a"), speeds=speeds)) == expected


def test_trainers_with_gpus_go_where_gpus_are_free_and_others_stay_away_from_there() -> None:
    mixed = [*nodes(1), Node("g", Amounts(4000, 64_000, 2))]
    jobs = [waits("a", most=2, need=Amounts(1000, 100, 1)), waits("b", most=4)]
    decision = decide(Cluster(mixed, jobs), NOW)
    assert decision.launches["a"].trainers == ("g", "g")
    assert set(decision.launches["b"].trainers) == {"n0"}


def test_a_job_that_does_not_tolerate_a_taint_stays_away() -> None:
    tainted = [Node("n0", Amounts(4000, 64_000), taints=frozenset({"x"}))]
    assert decide(Cluster(tainted, [waits("a")]), NOW).launches == {}
    assert "a" in decide(Cluster(tainted, [waits("a", tolerates=frozenset({"x"}))]), NOW).launches


def test_what_belongs_to_others_is_not_touched() -> None:
    taken = [Node("n0", Amounts(4000, 64_000), taken=Amounts(3000))]
    assert decide(Cluster(taken, [waits("a")]), NOW).targets == {"a": 1}


def test_a_job_above_its_bounds_shrinks() -> None:
    decision = decide(Cluster(nodes(1), [runs("a", {"n0": 4}, most=2)]), NOW)
    assert decision.victims == {"a": {"n0": 2}}


# --- Newcomers --------------------------------------------------------------------------------------------------------
def test_a_newcomer_begins_whole_or_not_at_all() -> None:
    job = waits("a", least=2, core=Core(ONE, ONE, 2))
    assert decide(Cluster(nodes(1), [job]), NOW).launches == {}
    launch = decide(Cluster(nodes(1, cores=6), [job]), NOW).launches["a"]
    assert (len(launch.masters), len(launch.servers), len(launch.trainers)) == (1, 2, 3)


def test_capacity_for_a_newcomer_comes_from_jobs_above_their_share_and_it_begins_when_that_is_free() -> None:
    big, small = runs("a", {"n0": 4, "n1": 4}), waits("b", least=2)
    decision = decide(Cluster(nodes(2), [big, small]), NOW)
    assert decision.launches == {}
    assert mentions(decision.messages["b"], elastic_messages.FREEING_CAPACITY)
    assert decision.messages["a"] == elastic_messages.SCALES_DOWN_FOR_OTHERS(
        before=8, trainers=training_messages.TRAINER_COUNT(count=6), beneficiary="`b`"
    )
    victims = decision.victims["a"]
    stopping = replace(
        big,
        trainers={name: count - victims.get(name, 0) for name, count in big.trainers.items()},
        leaving={name: ONE.times(count) for name, count in victims.items()},
    )
    assert decide(Cluster(nodes(2), [stopping, small]), NOW + 1).victims == {}
    gone = replace(stopping, leaving={})
    assert len(decide(Cluster(nodes(2), [gone, small]), NOW + 2).launches["b"].trainers) == 2


def test_no_job_shrinks_below_its_least_for_an_equal_one() -> None:
    decision = decide(Cluster(nodes(1), [runs("a", {"n0": 4}, least=4), waits("b")]), NOW)
    assert decision.targets["a"] == 4
    assert mentions(
        decision.messages["b"], elastic_messages.NO_CAPACITY, trainers=training_messages.TRAINER_COUNT_ONE(count=1)
    )


def test_a_job_of_lower_priority_stops_whole_once_it_has_run_for_a_while() -> None:
    jobs = [runs("a", {"n0": 4}, least=4), waits("b", priority=1)]
    decision = decide(Cluster(nodes(1), jobs), NOW, PREEMPTING)
    assert decision.preempted == {"a": "b"}
    assert mentions(decision.messages["a"], elastic_messages.PREEMPTED, beneficiary="`b`")
    fresh = [replace(jobs[0], started=NOW - 1), replace(jobs[1], submitted=NOW)]
    assert decide(Cluster(nodes(1), fresh), NOW, PREEMPTING).preempted == {}


def preempted_for(newcomer: Job, *, started: float = 0.0, preempts: bool = True) -> set[str]:
    """Return the jobs on the only node that stop for the newcomer."""
    job = runs("a", {"n0": 4}, least=4, started=started)
    return set(decide(Cluster(nodes(1), [job, newcomer]), NOW + 9000, Rules(preempts=preempts)).preempted)


def test_a_job_stops_only_for_one_that_would_go_before_it_in_the_queue() -> None:
    newcomer, head_start = waits("b", priority=1), Rules().head_start
    assert preempted_for(replace(newcomer, submitted=head_start - 1)) == {"a"}
    assert preempted_for(replace(newcomer, submitted=head_start)) == set()
    assert preempted_for(replace(newcomer, submitted=head_start, priority=2)) == {"a"}


def test_a_job_does_not_stop_for_one_that_came_before_it_began() -> None:
    assert preempted_for(waits("b", priority=1), started=901.0) == set()


def test_a_job_does_not_stop_for_another_namespace() -> None:
    assert preempted_for(waits("b", priority=1, namespace="x")) == set()


def test_no_job_stops_for_a_preempted_one() -> None:
    assert preempted_for(waits("b", priority=1, requeued=950.0)) == set()


@pytest.mark.invariant("Elastic decisions stop no job if the rules exclude preemption.")
def test_where_jobs_are_not_to_be_preempted_none_is() -> None:
    assert preempted_for(waits("b", priority=1), preempts=False) == set()


def test_of_equal_jobs_the_one_that_loses_least_stops() -> None:
    jobs = [
        runs(key, {f"n{at}": 4}, least=4, checkpoint_age=age) for at, (key, age) in enumerate([("a", 500), ("b", 5)])
    ]
    assert decide(Cluster(nodes(2), [*jobs, waits("c", priority=1)]), NOW, PREEMPTING).preempted == {"b": "c"}


def test_nothing_is_stopped_for_a_newcomer_that_would_not_fit_even_so() -> None:
    jobs = [runs("a", {"n0": 4}, least=2), waits("b", least=9, priority=1)]
    decision = decide(Cluster(nodes(1), jobs), NOW, PREEMPTING)
    assert (decision.victims, decision.preempted) == ({}, {})


def test_an_overdue_job_is_not_overtaken() -> None:
    big, small = waits("big", least=3), replace(waits("small"), submitted=901.0)
    cluster = Cluster(nodes(1), [runs("a", {"n0": 2}, least=2, most=2), big, small])
    assert "small" in decide(cluster, NOW).launches
    decision = decide(cluster, big.submitted + Rules().patience + 1)
    assert decision.launches == {}
    assert decision.messages["small"] == (elastic_messages.BEHIND_IN_QUEUE(job="`big`"))


def test_later_jobs_pass_one_that_does_not_fit_as_long_as_they_leave_enough_for_it() -> None:
    before, big = runs("before", {"n0": 2}, least=2, most=2), waits("big", least=3)
    passing = [replace(waits(key, most=1), submitted=901.0) for key in ("x", "y")]
    decision = decide(Cluster(nodes(1), [before, big, *passing]), NOW)
    assert set(decision.launches) == {"x"}
    one_runs = runs("x", {"n0": 1}, most=1, submitted=901.0)
    assert decide(Cluster(nodes(1), [before, big, one_runs, passing[1]]), NOW).launches == {}
    came_first = replace(one_runs, submitted=0.0)
    assert set(decide(Cluster(nodes(1), [before, big, came_first, passing[1]]), NOW).launches) == {"y"}


def test_a_job_that_waits_for_the_limit_of_its_namespace_holds_up_no_other_namespace() -> None:
    full, stuck = runs("a", {"n0": 2}, least=2, most=2, namespace="x"), waits("b", least=2, namespace="x")
    others = [replace(waits(key), submitted=901.0, namespace=key[0]) for key in ("x-late", "y-late")]
    late = stuck.submitted + Rules().patience + 1
    decision = decide(Cluster(nodes(4), [full, stuck, *others], limits=limited(3)), late)
    assert set(decision.launches) == {"y-late"}


def test_servers_are_sized_with_the_trainers_that_can_be_expected() -> None:
    job = waits("a", most=8, core=Core(NOTHING, ONE, 4, trainers_per_server=4))
    assert len(decide(Cluster(nodes(5), [job]), NOW).launches["a"].servers) == 2


def test_a_job_that_has_lost_trainers_gets_its_least_back_before_a_newcomer() -> None:
    jobs = [runs("a", {"n0": 1}, least=3, most=3), waits("b", least=2), runs("c", {"n0": 2, "n1": 4}, least=4)]
    decision = decide(Cluster(nodes(2), jobs), NOW)
    assert decision.targets["a"] == 3
    assert mentions(decision.messages["b"], elastic_messages.NO_CAPACITY)


# --- Services ---------------------------------------------------------------------------------------------------------
def test_a_service_of_higher_priority_gets_capacity_at_once() -> None:
    service = Service("web", Amounts(2000, 100), 2, {"n0": 1}, priority=5)
    decision = decide(Cluster(nodes(2), [runs("a", {"n0": 2, "n1": 4})], [service]), NOW)
    assert decision.victims == {"a": {"n0": 2}}
    assert decision.messages["a"] == elastic_messages.SCALES_DOWN_FOR_OTHERS(
        before=6, trainers=training_messages.TRAINER_COUNT(count=4), beneficiary="`web`"
    )


def test_a_service_takes_nothing_from_jobs_of_its_own_priority() -> None:
    service = Service("web", ONE, 1, priority=0)
    assert decide(Cluster(nodes(1), [runs("a", {"n0": 4})], [service]), NOW).victims == {}


def test_a_service_that_has_grown_finds_capacity_when_it_grows_again() -> None:
    grown = Service("web", ONE, 8, {"n0": 4, "n1": 4}, history=((0.0, 4), (NOW - 10, 8)))
    rules = Rules(headroom=0.5)
    assert headroom(grown, NOW, rules) == 2
    assert headroom(grown, NOW + 1000, rules) == 0
    assert decide(Cluster(nodes(3), [waits("a")], [grown]), NOW, rules).targets == {"a": 2}


# --- Rest -------------------------------------------------------------------------------------------------------------
def test_a_job_that_shrank_a_moment_ago_does_not_grow() -> None:
    job = runs("a", {"n0": 1}, changed=NOW - 5, change=-1)
    decision = decide(Cluster(nodes(1), [job]), NOW)
    assert decision.targets == {"a": 1}
    assert decision.messages["a"] == elastic_messages.KEEPS_AFTER_CHANGE(
        trainers=training_messages.TRAINER_COUNT_ONE(count=1)
    )
    assert decide(Cluster(nodes(1), [job]), NOW + 60).targets == {"a": 4}


def test_shares_are_evened_out_but_not_at_the_cost_of_a_job_that_grew_a_moment_ago() -> None:
    rich, poor = runs("a", {"n0": 4, "n1": 4}), runs("b", {"n2": 1}, changed=0.0, change=1)
    cluster = Cluster([*nodes(2), Node("n2", ONE)], [rich, poor])
    assert decide(cluster, NOW).targets == {"a": 5, "b": 4}
    fresh = replace(rich, changed=NOW - 5, change=1)
    assert decide(Cluster(cluster.nodes, [fresh, poor]), NOW).victims == {}


# --- Limits and overcommitment ---
def limited(cores: int) -> dict[str, Amounts]:
    return {"x": Amounts(cores * 1000, UNLIMITED, UNLIMITED)}


def test_no_job_grows_beyond_the_limit_of_its_namespace_and_others_take_the_rest() -> None:
    jobs = [runs("a", {"n0": 1}, namespace="x"), runs("b", {"n1": 1}, namespace="y")]
    assert decide(Cluster(nodes(2), jobs, limits=limited(2)), NOW).targets == {"a": 2, "b": 6}


def test_a_newcomer_whose_namespace_is_full_gets_capacity_from_its_own_namespace() -> None:
    jobs = [
        runs("a", {"n0": 3}, namespace="x"),
        runs("b", {"n1": 4}, namespace="y"),
        waits("c", least=1, namespace="x"),
    ]
    decision = decide(Cluster(nodes(4), jobs, limits=limited(3)), NOW)
    assert (sum(decision.victims["a"].values()), "b" in decision.victims) == (1, False)
    assert decision.messages["a"] == elastic_messages.SCALES_DOWN_FOR_OTHERS(
        before=3, trainers=training_messages.TRAINER_COUNT(count=2), beneficiary="`c`"
    )


def test_where_more_was_admitted_than_there_is_jobs_give_up_what_they_have_grown_by() -> None:
    jobs = [runs("a", {"n0": 4}, first=2, namespace="x"), runs("b", {"n0": 2}, first=2, namespace="x")]
    assert decide(Cluster(nodes(1), jobs), NOW).victims == {"a": {"n0": 2}}
    assert decide(Cluster(nodes(2, cores=8), jobs, limits=limited(5)), NOW).victims == {"a": {"n0": 1}}
    assert decide(Cluster(nodes(1, cores=2), [runs("a", {"n0": 3}, first=3)]), NOW).victims == {}, "so it was asked for"


# --- Properties of every cluster --------------------------------------------------------------------------------------
SHAPES = (ONE, Amounts(2000, 4000), Amounts(3000, 1000), Amounts(1000, 2000, 1), NOTHING)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Generate clusters: jobs and services on nodes with enough capacity, some that wait, and some that stop."""
    chance = random.Random(draw(st.integers(0, 2**32)))
    there = [Node(f"n{at}", Amounts(chance.randint(2, 12) * 1000, 32_000, chance.choice((0, 0, 2)))) for at in range(5)]
    free = {node.name: list(node.allocatable) for node in there}
    jobs = [_job(f"j{at}", chance, free) for at in range(draw(st.integers(0, 7)))]
    services = [_service(chance, free) for _ in range(draw(st.integers(0, 1)))]
    limits = {"x": Amounts(chance.randint(0, 30) * 1000, UNLIMITED, UNLIMITED)} if draw(st.booleans()) else {}
    return Cluster(there, jobs, services, limits)


def _job(key: str, chance: random.Random, free: dict[str, list[int]]) -> Job:
    least = chance.randint(1, 3)
    core = Core(chance.choice(SHAPES), ONE, chance.randint(0, 2), chance.choice((None, 3)))
    job = Job(
        key, least, least + chance.randint(0, 6), chance.choice(SHAPES[:4]), core, submitted=chance.uniform(0, NOW)
    )
    job = replace(
        job, namespace=chance.choice("xy"), priority=chance.randint(0, 2), checkpoint_age=chance.uniform(0, 99)
    )
    on = _put(job.trainer, chance.randint(least, job.most), chance, free)
    if chance.random() < 0.4 or sum(on.values()) < least:
        for name, count in on.items():
            free[name] = [left + amount * count for left, amount in zip(free[name], job.trainer, strict=True)]
        return job
    left = _put(ONE, chance.randint(0, 1), chance, free)
    changed = {"changed": NOW - chance.uniform(0, 60), "change": chance.choice((-1, 1))}
    leaving = {name: ONE.times(count) for name, count in left.items()}
    return replace(job, started=chance.uniform(0, NOW), trainers=on, leaving=leaving, **changed)  # type: ignore[arg-type]


def _service(chance: random.Random, free: dict[str, list[int]]) -> Service:
    wanted, need = chance.randint(0, 8), chance.choice(SHAPES[:3])
    on = _put(need, chance.randint(0, wanted), chance, free)
    return Service("web", need, wanted, on, priority=chance.randint(0, 3), history=((NOW - 20, 1), (NOW - 10, wanted)))


def _put(need: Amounts, count: int, chance: random.Random, free: dict[str, list[int]]) -> dict[str, int]:
    on: Counter[str] = Counter()
    for _ in range(count):
        fitting = [name for name, left in free.items() if all(a <= b for a, b in zip(need, left, strict=True))]
        if fitting:
            name = chance.choice(fitting)
            on[name] += 1
            free[name] = [left - amount for left, amount in zip(free[name], need, strict=True)]
    return dict(on)


def taken(cluster: Cluster) -> dict[str, Amounts]:
    """Return the amounts taken on every node, including those of stopping replicas."""
    sums = {node.name: node.taken for node in cluster.nodes}
    for each in (*cluster.jobs, *cluster.services):
        on = each.trainers if isinstance(each, Job) else each.bound
        need = each.trainer if isinstance(each, Job) else each.need
        held = each.held if isinstance(each, Job) else {}
        for name, count in on.items():
            sums[name] = sums[name].plus(need.times(count))
        for name, amounts in (*held.items(), *each.leaving.items()):
            sums[name] = sums[name].plus(amounts)
    return sums


def carried_out(cluster: Cluster, decision: Decision, now: float) -> Cluster:
    """Return the cluster after the decision was applied. Started replicas run, and stopped ones are still leaving."""
    return replace(cluster, jobs=[_after(job, decision, now) for job in cluster.jobs])


def _after(job: Job, decision: Decision, now: float) -> Job:
    if job.key in decision.preempted:
        return replace(job, started=None, trainers={}, held={}, leaving={})
    victims, grants = decision.victims.get(job.key, {}), decision.grants.get(job.key, {})
    launch = decision.launches.get(job.key)
    held = dict(job.held)
    if launch is not None:
        grants = Counter(launch.trainers)
        for names, need in ((launch.masters, job.core.master), (launch.servers, job.core.server)):
            for name in names:
                held[name] = held.get(name, NOTHING).plus(need)
    on = Counter(job.trainers)
    on.update(grants)
    on.subtract(victims)
    leaving = dict(job.leaving)
    for name, count in victims.items():
        leaving[name] = leaving.get(name, NOTHING).plus(job.trainer.times(count))
    change = sum(grants.values()) - sum(victims.values())
    moved = {"changed": now, "change": change} if change else {}
    started = now if launch is not None else job.started
    there = {name: count for name, count in on.items() if count}
    return replace(job, started=started, trainers=there, held=held, leaving=leaving, **moved)  # type: ignore[arg-type]


def settled(cluster: Cluster) -> Cluster:
    """Return the cluster once stopping replicas are gone and services are fulfilled where they fit."""
    jobs = [replace(job, leaving={}) for job in cluster.jobs]
    return replace(cluster, jobs=jobs, services=[replace(each, leaving={}) for each in cluster.services])


@pytest.mark.invariant("No node is assigned more than its allocatable capacity.")
@settings(max_examples=examples(150), deadline=None)
@given(clusters())
def test_no_node_is_ever_given_more_than_it_has(cluster: Cluster) -> None:
    after = taken(carried_out(cluster, decide(cluster, NOW, PREEMPTING), NOW))
    for node in cluster.nodes:
        assert all(a <= b for a, b in zip(after[node.name], node.allocatable, strict=True))


def in_use(cluster: Cluster, namespace: str) -> int:
    """Return the cores that the jobs of a namespace take, without those of stopping replicas."""
    jobs = [job for job in cluster.jobs if job.started is not None and job.namespace == namespace]
    return sum(job.trainer.cpu * job.size + total(job.held.values()).cpu for job in jobs)


@settings(max_examples=examples(150), deadline=None)
@given(clusters())
def test_no_namespace_takes_more_than_its_limit(cluster: Cluster) -> None:
    after = carried_out(cluster, decide(cluster, NOW, PREEMPTING), NOW)
    for namespace, limit in cluster.limits.items():
        assert in_use(after, namespace) <= max(limit.cpu, in_use(cluster, namespace))


@settings(max_examples=examples(150), deadline=None)
@given(clusters())
def test_every_job_stays_within_its_bounds_and_has_a_message(cluster: Cluster) -> None:
    decision = decide(cluster, NOW, PREEMPTING)
    priorities = {f"`{each.key}`": each.priority for each in (*cluster.jobs, *cluster.services)}
    for job in cluster.jobs:
        assert decision.messages[job.key]
        after = _after(job, decision, NOW)
        if job.key in decision.preempted:
            beneficiary = decision.messages[job.key].params["beneficiary"]
            assert priorities[beneficiary] > job.priority
        elif after.started is not None:
            assert job.least <= after.size <= job.most
            assert job.least <= decision.targets[job.key] <= job.most


@pytest.mark.invariant("A job that shrank does not grow within the cool-down.")
@settings(max_examples=examples(150), deadline=None)
@given(clusters())
def test_nobody_goes_back_within_the_cool_down_but_for_a_service_or_a_newcomer(cluster: Cluster) -> None:
    decision = decide(cluster, NOW, PREEMPTING)
    for job in cluster.jobs:
        recently = job.started is not None and job.changed is not None and NOW - job.changed < Rules().cool_down
        if recently and job.change < 0:
            assert job.key not in decision.grants
        if recently and job.change > 0 and job.key in decision.victims:
            assert not mentions(decision.messages[job.key], elastic_messages.JOBS_BELOW_FAIR_SHARE)
        assert not (job.key in decision.grants and job.key in decision.victims)


@settings(max_examples=examples(50), deadline=None)
@given(clusters())
def test_the_same_cluster_gives_the_same_decision(cluster: Cluster) -> None:
    assert decide(cluster, NOW, PREEMPTING) == decide(cluster, NOW, PREEMPTING)


@pytest.mark.invariant("Elastic decisions converge, even if the controller stops after a part of them.")
@settings(max_examples=examples(60), deadline=None)
@given(clusters(), st.integers(0, 2**16))
def test_decisions_come_to_rest_also_when_the_controller_dies_half_way(cluster: Cluster, seed: int) -> None:
    """The policy has no memory: after any part of a decision was applied, it decides again on the cluster found."""
    chance, now = random.Random(seed), NOW
    cluster = replace(cluster, services=[])
    for turn in range(40):
        decision = decide(cluster, now, PREEMPTING)
        if turn > 2 and not (decision.grants or decision.launches or decision.victims or decision.preempted):
            return
        if turn <= 2:
            half = [key for key in (*decision.grants, *decision.victims) if chance.random() < 0.5]
            keep = {key: value for key, value in decision.grants.items() if key not in half}
            stop = {key: value for key, value in decision.victims.items() if key not in half}
            decision = replace(decision, grants=keep, victims=stop)
        cluster, now = settled(carried_out(cluster, decision, now)), now + 60.0
    pytest.fail("It never came to rest.")


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(1, 5), st.integers(1, 5))
def test_more_nodes_make_no_job_wait_where_all_ask_for_the_same(sizes: list[int], least: int, count: int) -> None:
    jobs = [waits(f"j{at}", least, least + more) for at, more in enumerate(sizes)]
    few, many = (decide(Cluster(nodes(each), jobs), NOW).launches for each in (count, count + 1))
    assert few.keys() <= many.keys()


def test_sums_are_sums() -> None:
    assert total([ONE, ONE]) == ONE.times(2)
