"""Upper bounds, compared with all placements of items on a few nodes and with the results of policies."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.elastic.simulation import scenarios, upper_bounds
from jobs.elastic.simulation.simulator import simulate
from jobs.elastic.simulation.upper_bounds import Kinds, shared
from tests.properties import examples

NODE = Kinds(node=17_274, trainer=5000, server=4000, service=3000)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 20), min_size=4, max_size=4), min_size=1, max_size=4),
    st.data(),
)
def test_nothing_that_can_be_done_is_worth_more(nodes: list[list[int]], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 3 * len(nodes)))
    ways = [way for way in product(range(4), repeat=len(nodes)) if sum(way) == count]
    best = max(sum(worths[nth] for worths, nth in zip(nodes, way, strict=True)) for way in ways)
    assert shared([([float(each) for each in worths], 1) for worths in nodes], count) >= best - 1e-9


def test_nodes_that_are_worth_evenly_less_are_worth_just_that() -> None:
    assert shared([([15.0, 14.0, 13.0], 3)], 4) == pytest.approx(41.0)


@pytest.mark.parametrize(
    ("servers", "replicas", "cores"), [(0, 0, 15_000), (3, 0, 17_000), (2, 3, 17_000), (0, 3, 14_000)]
)
def test_a_node_holds_whole_replicas(servers: int, replicas: int, cores: int) -> None:
    assert NODE.in_use(servers, replicas) == cores


@pytest.mark.parametrize("policy", ["regatta", "published", "fixed"])
def test_no_policy_has_more_than_the_bound_of_the_first_experiment(policy: str) -> None:
    workload = scenarios.published_1(1)
    outcome = simulate(workload, scenarios.POLICIES[policy], scenarios.TIMING, 1)
    assert outcome.utilisation <= upper_bounds.utilisation(workload, scenarios.TIMING)
    assert upper_bounds.packed_trainer_seconds(workload) < upper_bounds.trainer_seconds(workload)
    if policy == "regatta":
        assert outcome.trainer_seconds <= upper_bounds.packed_trainer_seconds(workload)


def test_the_goal_of_the_first_experiment_is_above_what_its_nodes_allow() -> None:
    """The goal was 86 %. An immediate reaction would not be enough: pods would have to start immediately as well."""
    workload, ours = scenarios.published_1(0), scenarios.TIMING
    assert upper_bounds.utilisation(workload, ours) == pytest.approx(0.857, abs=0.002)
    assert upper_bounds.utilisation(workload, replace(ours, reaction=0.0)) < 0.86
    at_once = replace(ours, reaction=0.0, start=(0.0, 1e-6), calls=1e9)
    assert upper_bounds.utilisation(workload, at_once) == pytest.approx(0.866, abs=0.002)


def test_ours_is_near_what_can_be_had_without_foresight_beside_a_service() -> None:
    workload = scenarios.published_2(1)
    limit = upper_bounds.utilisation_beside_a_service(workload, 1)
    outcome = simulate(workload, scenarios.POLICIES["regatta"], scenarios.TIMING, 1)
    assert limit == pytest.approx(0.873, abs=0.005)
    assert limit - 0.02 < outcome.utilisation < limit
