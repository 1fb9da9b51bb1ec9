"""Any order of arrival, loss, repetition, partition and crash, without a process."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.simulation import Accounts, Simulation, Tasks
from tests.properties import examples


def schedules(simulation: type[Simulation], most: int) -> st.SearchStrategy:
    rules = [*simulation.RULES, *["ask", "arrive"] * 4]
    return st.lists(st.tuples(st.sampled_from(rules), st.integers(0, 1 << 12)), max_size=most)


@pytest.mark.invariant(
    "No task is lost, dispatched twice or counted twice, even if trainers and the master are killed."
)
@settings(max_examples=examples(250), deadline=None)
@given(st.integers(1, 6), st.booleans(), st.booleans(), schedules(Tasks, 60))
def test_tasks_survive_the_network(tasks: int, sync: bool, prefetch: bool, schedule) -> None:
    simulation = Tasks(tasks, sync, prefetch)
    simulation.run(schedule)
    simulation.finish()


@pytest.mark.invariant(
    "The parameters are exactly the sum of the applied steps, after any loss, repetition, partition and crash."
)
@pytest.mark.parametrize("mode", ["sync", "m_of_n(2)", "async"])
@settings(max_examples=examples(200), deadline=None)
@given(schedule=schedules(Accounts, 80))
def test_accounts_survive_the_network(mode: str, schedule) -> None:
    Accounts(mode).run(schedule)


@pytest.mark.parametrize("rule", ["arrive and come again", "lose", "cut", "crash", "master crashes", "time passes"])
def test_every_rule_can_happen(rule: str) -> None:
    """A schedule in which the rule has an effect: the network is not empty before it."""
    simulation = Tasks(3, sync=False)
    simulation.run([("ask", 0), ("ask", 1), ("ask", 2), (rule, 0), *[("arrive", 0)] * 6])
    simulation.finish()
    assert simulation.queue.finished
