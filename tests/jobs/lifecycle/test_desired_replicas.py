"""Desired trainers against observed ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jobs.lifecycle.desired_replicas import Changes, changes, trainer_count
from jobs.lifecycle.replica_facts import ReplicaFact
from jobs.lifecycle.state_machine import JobView
from jobs.lifecycle.states import JobState, ReplicaState
from tests.properties import examples

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def job(trainers: int) -> JobView:
    return JobView(id="j", state=JobState.RUNNING, attempt=1, changed=NOW, trainers=trainers)


def trainer(index: int, **fields: object) -> ReplicaFact:
    return replace(ReplicaFact(f"trainer-{index}", "trainer", ReplicaState.REGISTERED, registered=True), **fields)


def test_a_lost_replica_is_replaced_after_a_delay_that_grows() -> None:
    waits = []
    for restarts in range(3):
        lost = trainer(1, state=ReplicaState.EXITED, signal=9, restarts=restarts, finished=NOW)
        tenths = (n for n in range(100) if changes(job(2), [trainer(0), lost], NOW + timedelta(seconds=n / 10)))
        waits.append(next(tenths) / 10)
    assert waits == [0.5, 2, 5]


LEFT: dict[str, object] = {"state": ReplicaState.EXITED, "code": 75, "flushed": True}
DONE: dict[str, object] = {"state": ReplicaState.EXITED, "code": 0, "flushed": True}


@pytest.mark.parametrize(
    ("desired", "there", "expected"),
    [
        (2, [trainer(0), trainer(1)], Changes()),
        (4, [trainer(0), trainer(1)], Changes(start=(2, 3))),
        (1, [trainer(0), trainer(1), trainer(2)], Changes(dismiss=("trainer-1", "trainer-2"))),
        (1, [trainer(0), trainer(1, **LEFT)], Changes(dismiss=("trainer-1",))),
        (2, [trainer(0), trainer(1, **LEFT, dismissed=True)], Changes(return_=("trainer-1",))),
        (3, [trainer(0), trainer(1, dismissed=True)], Changes()),
        (3, [trainer(0, **DONE), trainer(1)], Changes()),
        (1, [trainer(0), trainer(1, **DONE)], Changes()),
    ],
    ids=[
        "all are there",
        "more are wanted",
        "fewer are wanted",
        "who is lost and not wanted is not missed",
        "who has left comes back",
        "who is leaving is waited for before others join",
        "nobody joins a training that ends",
        "who is done keeps its ending",
    ],
)
def test_desired_trainers_are_compared_with_observed_ones(
    desired: int, there: list[ReplicaFact], expected: Changes
) -> None:
    assert changes(job(desired), there, NOW) == expected


class Scaling(RuleBasedStateMachine):
    """The desired number changes while dismissed trainers are still stopping."""

    def __init__(self) -> None:
        super().__init__()
        self.desired = 2
        self.trainers = {index: trainer(index) for index in range(2)}

    @rule(desired=st.integers(1, 5))
    def a_person_scales(self, desired: int) -> None:
        self.desired = desired

    @rule()
    def staff(self) -> None:
        due = changes(job(self.desired), tuple(self.trainers.values()), NOW)
        for index in due.start:
            assert index not in self.trainers
            self.trainers[index] = trainer(index)
        for name in due.dismiss:
            self.change(name, dismissed=True)
        for name in due.return_:
            start_number = self.trainers[int(name[-1])].start_number + 1
            self.trainers[int(name[-1])] = trainer(int(name[-1]), start_number=start_number)

    @rule(index=st.integers(0, 4))
    def one_leaves(self, index: int) -> None:
        if index in self.trainers and self.trainers[index].dismissed and not self.trainers[index].ended:
            self.change(f"trainer-{index}", **LEFT)

    def change(self, name: str, **fields: object) -> None:
        self.trainers[int(name[-1])] = replace(self.trainers[int(name[-1])], **fields)

    @invariant()
    def trainers_that_stay_are_the_lowest_indices(self) -> None:
        staying = [index for index, fact in sorted(self.trainers.items()) if not fact.dismissed]
        assert staying == list(range(trainer_count(tuple(self.trainers.values()))))

    def teardown(self) -> None:
        """In the end the number of trainers is the desired one."""
        for _ in range(2):
            self.staff()
            for index in range(5):
                self.one_leaves(index)
        self.staff()
        assert trainer_count(tuple(self.trainers.values())) == self.desired


TestScaling = Scaling.TestCase
TestScaling.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
