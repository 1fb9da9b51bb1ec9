"""Lost pods that the controller replaces by itself: ``spec.maxStarts``."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jobs.operator.model import names
from jobs.operator.model.actions import Create
from jobs.operator.model.observed import Settings, is_finished, start_number_of
from tests.jobs.operator.world import SUCCEEDED, World, failed, paddle_job, running
from tests.properties import examples

PATIENCE = Settings().replace_after


def world(most: dict[str, int] | None = None, *, slow: bool = False, **spec: Any) -> World:
    limits = {"maxStarts": {"worker-1": 3} if most is None else most}
    cluster = World(paddle_job(master=1, worker=2, **{"starts": {}, **limits, **spec}), slow=slow)
    return cluster.up()


def starts(world: World) -> dict[str, str]:
    return {names.name_of(pod)[3:]: pod["metadata"]["labels"][names.START_NUMBER_LABEL] for pod in world.of("Pod")}


def pass_time(cluster: World, seconds: float = PATIENCE) -> None:
    cluster.later(seconds)
    cluster.settle()


def lose(cluster: World, name: str = "wd-worker-1") -> None:
    cluster.lose(name)
    cluster.settle()


@pytest.mark.invariant("A lost pod is replaced without the portal, within the starts that its PaddleJob grants.")
def test_a_lost_pod_is_replaced_after_the_time_for_a_decision() -> None:
    cluster = world()
    lose(cluster)
    assert "worker-1" not in starts(cluster)
    pass_time(cluster)
    assert starts(cluster)["worker-1"] == "2"
    assert cluster.status["grantedStarts"] == {"worker-1": 2}
    assert "lostSince" not in cluster.status


def test_the_plan_names_the_time_of_the_replacement() -> None:
    cluster = world()
    lose(cluster)
    cluster.later(3)
    assert cluster.plan().requeue_after == PATIENCE - 3


def test_a_grant_is_written_before_the_pod_is_created() -> None:
    cluster = world()
    lose(cluster)
    cluster.later(PATIENCE)
    made = cluster.plan()
    assert made.status_first
    assert made.status is not None
    assert made.status["grantedStarts"] == {"worker-1": 2}
    assert [action.name for action in made.actions if isinstance(action, Create)] == ["wd-worker-1"]


def test_a_grant_that_was_written_before_a_crash_creates_one_pod() -> None:
    cluster = world()
    lose(cluster)
    cluster.later(PATIENCE)
    cluster.remember(cluster.plan())  # and the pod is not created
    cluster.settle()
    assert (starts(cluster)["worker-1"], cluster.status["grantedStarts"]) == ("2", {"worker-1": 2})


@pytest.mark.parametrize("most", [{}, {"worker-0": 3}, {"worker-1": 1}])
def test_a_place_without_a_start_in_advance_stays_empty(most: dict[str, int]) -> None:
    cluster = world(most)
    lose(cluster)
    pass_time(cluster, 1000)
    assert "worker-1" not in starts(cluster)


def test_starts_in_advance_mean_nothing_where_the_controller_decides_anyway() -> None:
    cluster = World(paddle_job(worker=1, master=1, maxStarts={"worker-0": 2})).up()
    lose(cluster, "wd-worker-0")
    assert "grantedStarts" not in cluster.status
    assert "wd-worker-0" in cluster.pods()


def test_another_loss_waits_twice_as_long_and_the_last_start_is_the_limit() -> None:
    cluster = world()
    lose(cluster)
    pass_time(cluster)
    cluster.pod("wd-worker-1", running())
    cluster.settle()
    lose(cluster)
    pass_time(cluster)
    assert "worker-1" not in starts(cluster)
    pass_time(cluster)
    assert starts(cluster)["worker-1"] == "3"
    lose(cluster)
    pass_time(cluster, 1000)
    assert "worker-1" not in starts(cluster)


def test_a_start_that_the_creator_allows_meanwhile_is_the_next_one() -> None:
    cluster = world()
    lose(cluster)
    cluster.change({"spec": {"starts": {"worker-1": 2}}})
    pass_time(cluster, 1000)
    assert starts(cluster)["worker-1"] == "2"
    assert "grantedStarts" not in cluster.status


def test_a_start_that_the_creator_allows_after_the_grant_is_the_same() -> None:
    cluster = world()
    lose(cluster)
    cluster.later(PATIENCE)
    cluster.remember(cluster.plan())
    cluster.change({"spec": {"starts": {"worker-1": 2}}})
    cluster.settle()
    assert starts(cluster)["worker-1"] == "2"
    lose(cluster)
    assert "worker-1" not in starts(cluster)


def test_an_evicted_pod_is_deleted_and_replaced() -> None:
    cluster = world()
    cluster.pod("wd-worker-1", failed(1, "Evicted"))
    cluster.settle()
    pass_time(cluster)
    assert starts(cluster)["worker-1"] == "2"


@pytest.mark.parametrize("state", [failed(1), failed(137), dict(SUCCEEDED)])
def test_a_pod_that_ended_by_itself_is_not_replaced(state: dict[str, Any]) -> None:
    cluster = world(cleanPodPolicy="Never")
    cluster.pod("wd-worker-1", state)
    cluster.settle()
    pass_time(cluster, 1000)
    assert starts(cluster)["worker-1"] == "1"


def test_the_failure_policy_says_which_crashes_are_replaced() -> None:
    rules = [{"roles": ["worker"], "exitCodes": ["137"], "action": "RestartIgnoreLimit"}]
    cluster = world({"worker-1": 2, "master-0": 2}, failurePolicy={"rules": rules})
    cluster.pod("wd-worker-1", failed(137))
    cluster.pod("wd-master-0", failed(137))
    cluster.settle()
    pass_time(cluster)
    assert starts(cluster) == {"master-0": "1", "worker-0": "1", "worker-1": "2"}


def test_a_worker_is_not_replaced_once_another_has_ended() -> None:
    cluster = world({"worker-1": 2, "master-0": 2}, cleanPodPolicy="Never")
    cluster.pod("wd-worker-0", dict(SUCCEEDED))
    cluster.settle()
    lose(cluster)
    lose(cluster, "wd-master-0")
    pass_time(cluster, 1000)
    assert starts(cluster) == {"worker-0": "1", "master-0": "2"}


def test_the_time_counts_from_the_deletion_and_the_next_pod_waits_for_its_name() -> None:
    cluster = world(slow=True)
    cluster.objects["Pod", "wd-worker-1"]["metadata"]["deletionTimestamp"] = "2026-03-01T00:00:00Z"
    cluster.settle()
    pass_time(cluster, 60)
    assert starts(cluster)["worker-1"] == "1"
    assert "grantedStarts" not in cluster.status
    cluster.reap()
    cluster.settle()
    assert starts(cluster)["worker-1"] == "2"


@pytest.mark.invariant("The controller grants no start to a PaddleJob that was stopped or scaled down.")
@pytest.mark.parametrize("change", [{"runPolicy": {"suspend": True}}, {"worker": {"replicas": 1}}])
def test_a_job_that_was_stopped_or_scaled_down_gets_no_pod(change: dict[str, Any]) -> None:
    cluster = world()
    lose(cluster)
    cluster.change({"spec": change})
    pass_time(cluster, 1000)
    assert "worker-1" not in starts(cluster)
    assert "grantedStarts" not in cluster.status


def test_a_pod_that_was_taken_for_lost_is_deleted_before_the_granted_one() -> None:
    """As with a cache that has not seen the pod: the portal may count the granted start already."""
    cluster = world()
    hidden = cluster.objects.pop(("Pod", "wd-worker-1"))
    cluster.settle()
    cluster.later(PATIENCE)
    cluster.remember(cluster.plan())
    cluster.objects["Pod", "wd-worker-1"] = hidden
    cluster.settle()
    assert starts(cluster)["worker-1"] == "2"


class LossMachine(RuleBasedStateMachine):
    """Losses, crashes, stale caches and a portal that adopts, restarts, scales and stops at any moment."""

    MOST = 4

    def __init__(self) -> None:
        super().__init__()
        self.world = world({})
        self.made: dict[tuple[str, int], str] = {}  # the UID of each start
        self.stopped: dict[str, int] | None = None  # grants at the time of the stop

    @initialize(
        slow=st.booleans(),
        most=st.dictionaries(st.sampled_from(["worker-0", "worker-1", "master-0"]), st.integers(1, MOST)),
    )
    def begin(self, slow: bool, most: dict[str, int]) -> None:
        self.world = world(most, slow=slow, cleanPodPolicy="Never")
        self.note()

    def note(self) -> None:
        for pod in self.world.of("Pod"):
            place, number = names.name_of(pod)[3:], start_number_of(pod)
            assert self.made.setdefault((place, number), names.uid_of(pod)) == names.uid_of(pod), "one start, one pod"

    @rule()
    def look(self) -> None:
        if self.world.step().actions:
            self.observe()
        self.note()

    def observe(self) -> None:
        """Run the pass that follows every action, or the first one of the next controller, up to its status."""
        self.world.remember(self.world.plan())

    @rule(done=st.integers(0, 3))
    def plan_and_crash(self, done: int) -> None:
        made = self.world.plan()
        self.world.remember(made)
        self.world.do(made.actions[:done])
        self.note()
        self.observe()

    @rule(
        which=st.integers(0, 9), state=st.sampled_from([running(), failed(1, "Evicted"), failed(137), dict(SUCCEEDED)])
    )
    def a_pod_does_something(self, which: int, state: dict[str, Any]) -> None:
        pods = [name for name in self.world.pods() if not is_finished(self.world.objects["Pod", name])]
        if pods:
            self.world.pod(pods[which % len(pods)], state)

    @rule(which=st.integers(0, 9))
    def a_pod_is_lost(self, which: int) -> None:
        if pods := self.world.pods():
            self.world.lose(pods[which % len(pods)])

    @rule(seconds=st.sampled_from([1, 8, 40]))
    def time_passes(self, seconds: int) -> None:
        self.world.later(seconds)
        self.world.reap()

    @rule(place=st.sampled_from(["worker-0", "worker-1", "master-0"]))
    def the_portal_adopts_or_restarts(self, place: str) -> None:
        made = self.world.status.get("starts", {}).get(place, 1)
        granted = self.world.status.get("grantedStarts", {}).get(place, 1)
        lost = f"wd-{place}" not in self.world.pods()
        self.world.change({"spec": {"starts": {place: min(self.MOST, max(made + lost, granted))}}})

    @rule()
    def the_portal_stops_the_job(self) -> None:
        self.world.change({"spec": {"runPolicy": {"suspend": True}}})
        if self.stopped is None:
            self.stopped = dict(self.world.status.get("grantedStarts", {}))

    @invariant()
    def no_start_is_above_what_was_allowed(self) -> None:
        spec = self.world.job["spec"]
        for place, number in self.made:
            allowed = max(spec["starts"].get(place, 1), spec["maxStarts"].get(place, 1))
            assert number <= allowed, "a start above the allowance"

    @invariant()
    def nothing_is_granted_after_a_stop(self) -> None:
        if self.stopped is not None:
            assert self.world.status.get("grantedStarts", {}) == self.stopped

    def teardown(self) -> None:
        for _ in range(4):
            self.world.later(400)
            self.world.reap()
            self.world.settle()
            self.note()
        if self.stopped is not None and self.world.phase == "Suspended":
            assert self.world.pods() == []


LossMachine.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=20, deadline=None)


@pytest.mark.invariant("No two pods of a PaddleJob have one start, and none a start above its allowance.")
class TestLossMachine(LossMachine.TestCase):
    pass
