"""The work queue of jobs."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jobs.operator.client.workqueue import Backoff, WorkQueue
from tests.properties import examples


class Bench:
    """A queue with a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.queue = WorkQueue(lambda: self.now, Backoff(1, 8))

    def take(self) -> str | None:
        taken = self.queue.get(wait=False)
        return taken[0] if taken else None


def test_a_key_that_is_added_twice_comes_once() -> None:
    bench = Bench()
    for key in ("a", "b", "a"):
        bench.queue.add(key)
    assert [bench.take(), bench.take(), bench.take()] == ["a", "b", None]


def test_a_key_that_is_added_while_taken_comes_again_when_it_is_done() -> None:
    bench = Bench()
    bench.queue.add("a")
    bench.take()
    bench.queue.add("a")
    assert bench.take() is None
    bench.queue.done("a")
    assert bench.take() == "a"


def test_of_several_delayed_additions_the_earliest_counts_once() -> None:
    bench = Bench()
    bench.queue.add_after("a", 10)
    bench.queue.add_after("a", 5)
    bench.queue.add_after("a", 20)
    bench.now = 4.9
    assert bench.take() is None
    bench.now = 5
    assert bench.take() == "a"
    bench.queue.done("a")
    bench.now = 100
    assert bench.take() is None


def test_failures_in_a_row_wait_longer_until_one_goes_well() -> None:
    bench = Bench()
    pauses = []
    for _ in range(5):
        bench.queue.retry("a")
        begun = bench.now
        while bench.take() is None:
            bench.now += 1
        bench.queue.done("a")
        pauses.append(bench.now - begun)
    assert pauses == [1, 2, 4, 8, 8]
    bench.queue.forget("a")
    bench.queue.retry("a")
    bench.now += 1
    assert bench.take() == "a"


def test_the_waiting_time_of_a_key_is_returned() -> None:
    bench = Bench()
    bench.queue.add("a")
    bench.now = 3
    bench.queue.add("a")
    assert bench.queue.get(wait=False) == ("a", 3)


def test_a_closed_queue_lets_everybody_go() -> None:
    bench = Bench()
    bench.queue.add("a")
    bench.queue.close()
    assert bench.queue.get() is None


class Use(RuleBasedStateMachine):
    """Every added key is returned, and no key is taken twice at once."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.handed: set[str] = set()
        self.taken: set[str] = set()

    @rule(key=st.sampled_from("abc"))
    def request(self, key: str) -> None:
        self.bench.queue.add(key)
        self.handed.add(key)

    @rule(key=st.sampled_from("abc"), seconds=st.integers(0, 5))
    def request_later(self, key: str, seconds: int) -> None:
        self.bench.queue.add_after(key, seconds)
        self.handed.add(key)

    @rule()
    def take(self) -> None:
        key = self.bench.take()
        if key:
            assert key not in self.taken
            self.taken.add(key)
            self.handed.discard(key)

    @rule(key=st.sampled_from("abc"))
    def finish(self, key: str) -> None:
        if key in self.taken:
            self.taken.discard(key)
            self.bench.queue.done(key)

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds: int) -> None:
        self.bench.now += seconds

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.bench.queue) <= 3

    def teardown(self) -> None:
        for key in sorted(self.taken):
            self.bench.queue.done(key)
        self.bench.now += 100
        assert {self.bench.take() for _ in range(4)} >= self.handed


Use.TestCase.settings = settings(max_examples=examples(30), deadline=None)
TestUse = Use.TestCase
