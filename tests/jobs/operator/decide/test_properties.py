"""Properties of every plan, for any job, objects and history."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jobs.operator.decide.plan import Plan
from jobs.operator.model.actions import Create, Delete
from tests.jobs.operator.world import SUCCEEDED, World, failed, paddle_job, role, running
from tests.properties import examples

_POLICIES = st.sampled_from(["", "Always", "Never", "OnFailure", "OnCompletion"])
_INTRANETS = st.sampled_from(["", "PodIP", "Service", "Host"])
_POD_STATES = st.sampled_from(
    [
        {"phase": "Pending"},
        running(),
        running(ready=False),
        dict(SUCCEEDED),
        failed(1),
        failed(137),
        failed(1, "Evicted"),
    ]
)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "cleanPodPolicy": draw(_POLICIES),
        "intranet": draw(_INTRANETS),
        "withGloo": draw(st.integers(0, 2)),
    }
    for name, most in (("ps", 2), ("worker", 3), ("master", 1)):
        replicas = draw(st.integers(1 if name == "worker" else 0, most))
        if replicas:
            spec[name] = role(replicas)
    if draw(st.booleans()):
        spec["elastic"] = 1
        spec["worker"] = role(draw(st.integers(1, 3)), requests=1, limits=3)
    spec["runPolicy"] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "backoffLimit": st.integers(0, 2),
                "suspend": st.booleans(),
                "activeDeadlineSeconds": st.just(600),
            },
        )
    )
    if draw(st.booleans()):
        places = st.dictionaries(st.sampled_from(["worker-0", "worker-1", "ps-0"]), st.integers(1, 3))
        spec["starts"], spec["maxStarts"] = draw(places), draw(places)
    return paddle_job(**spec)


def keys(made: Plan, kind: type[Create] | type[Delete]) -> list[tuple[str, str]]:
    return [(action.kind, action.name) for action in made.actions if isinstance(action, kind)]


def judge(made: Plan) -> None:
    created, deleted = keys(made, Create), keys(made, Delete)
    assert len(set(created)) == len(created), "an object is made twice"
    assert len(set(deleted)) == len(deleted), "an object is deleted twice"
    assert not set(created) & set(deleted), "an object is made and deleted"


@pytest.mark.invariant("After the controller has carried out a plan, there is nothing to plan.")
@given(jobs())
@settings(max_examples=examples(40), deadline=None)
def test_after_a_plan_is_carried_out_there_is_nothing_to_plan(job: dict[str, Any]) -> None:
    world = World(job)
    world.settle(limit=5)  # the status describes the pods after they are created
    assert world.plan() == Plan(requeue_after=world.plan().requeue_after)


@pytest.mark.invariant("A PaddleJob reaches the same end from any subset of its objects.")
@given(jobs(), st.data())
@settings(max_examples=examples(40), deadline=None)
def test_from_any_part_of_its_objects_a_job_comes_to_the_same_end(job: dict[str, Any], data: st.DataObject) -> None:
    job["spec"]["runPolicy"].pop("suspend", None)
    job["spec"].pop("starts", None)  # with it, deleted pods are not replaced
    whole = World(copy.deepcopy(job)).up()
    part = World(job).up()
    for key in data.draw(st.sets(st.sampled_from(sorted(part.objects)))):
        del part.objects[key]
    for _ in range(3):  # new pods have to start, too
        part.later(60)
        part.up()
    assert part.phase == whole.phase == "Running"
    assert sorted(part.objects) == sorted(whole.objects)
    assert set(part.config_data or {}) == set(whole.config_data or {})


class JobMachine(RuleBasedStateMachine):
    """Any event for a job, in any order; controllers crash between writing and acting."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(paddle_job(worker=1))
        self.ended = ""

    @initialize(job=jobs(), slow=st.booleans())
    def begin(self, job: dict[str, Any], slow: bool) -> None:
        self.world = World(job, slow=slow)

    @rule()
    def look(self) -> None:
        judge(self.world.step())

    @rule(done=st.integers(0, 5))
    def plan_and_crash(self, done: int) -> None:
        made = self.world.plan()
        self.world.remember(made)
        self.world.do(made.actions[:done])

    @rule(which=st.integers(0, 9), state=_POD_STATES)
    def a_pod_does_something(self, which: int, state: dict[str, Any]) -> None:
        pods = self.world.pods()
        if pods:
            self.world.pod(pods[which % len(pods)], state)

    @rule(which=st.integers(0, 30))
    def somebody_deletes_something(self, which: int) -> None:
        keys_ = sorted(self.world.objects)
        if keys_:
            del self.world.objects[keys_[which % len(keys_)]]

    @rule(seconds=st.sampled_from([1, 30, 400]))
    def time_passes(self, seconds: int) -> None:
        self.world.later(seconds)
        self.world.reap()

    @rule(
        change=st.sampled_from(
            [
                {"worker": {"replicas": 2}},
                {"starts": {"worker-0": 2}},
                {"runPolicy": {"suspend": True}},
                {"runPolicy": {"suspend": False}},
            ]
        )
    )
    def somebody_edits_the_job(self, change: dict[str, Any]) -> None:
        self.world.change({"spec": change})

    @invariant()
    def planning_changes_nothing_by_itself(self) -> None:
        assert self.world.plan() == self.world.plan()

    @invariant()
    def no_object_is_made_and_deleted_at_once(self) -> None:
        judge(self.world.plan())

    @invariant()
    def an_end_is_for_ever(self) -> None:
        if self.ended:
            assert self.world.phase == self.ended
        elif self.world.phase in ("Completed", "Failed"):
            self.ended = self.world.phase

    @invariant()
    def failures_are_counted_within_the_limit(self) -> None:
        limit = self.world.job["spec"].get("runPolicy", {}).get("backoffLimit") or 0
        assert self.world.status.get("restarts", 0) <= limit

    def teardown(self) -> None:
        """Check that the job settles without further events, whatever happened before."""
        for _ in range(4):
            self.world.later(400)
            self.world.reap()
            self.world.settle()
            self.world.reap()
        self.world.settle()


JobMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=20, deadline=None)


@pytest.mark.invariant("No plan creates and deletes the same object, whatever happens to a PaddleJob.")
class TestJobMachine(JobMachine.TestCase):
    pass
