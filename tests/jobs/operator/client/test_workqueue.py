"""Which job is looked at next."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jobs.operator.client.workqueue import Backoff, WorkQueue
from tests.properties import examples


class Hands:
    """A queue whose clock the test turns."""

    def __init__(self) -> None:
        self.now = 0.0
        self.queue = WorkQueue(lambda: self.now, Backoff(1, 8))

    def take(self) -> str | None:
        taken = self.queue.get(wait=False)
        return taken[0] if taken else None


def test_a_key_that_is_asked_for_twice_comes_once() -> None:
    hands = Hands()
    for key in ("a", "b", "a"):
        hands.queue.add(key)
    assert [hands.take(), hands.take(), hands.take()] == ["a", "b", None]


def test_a_key_that_is_asked_for_while_somebody_has_it_comes_again_when_it_is_done() -> None:
    hands = Hands()
    hands.queue.add("a")
    hands.take()
    hands.queue.add("a")
    assert hands.take() is None
    hands.queue.done("a")
    assert hands.take() == "a"


def test_of_several_wishes_for_later_the_earliest_counts_once() -> None:
    hands = Hands()
    hands.queue.add_after("a", 10)
    hands.queue.add_after("a", 5)
    hands.queue.add_after("a", 20)
    hands.now = 4.9
    assert hands.take() is None
    hands.now = 5
    assert hands.take() == "a"
    hands.queue.done("a")
    hands.now = 100
    assert hands.take() is None


def test_failures_in_a_row_wait_longer_until_one_goes_well() -> None:
    hands = Hands()
    pauses = []
    for _ in range(5):
        hands.queue.retry("a")
        begun = hands.now
        while hands.take() is None:
            hands.now += 1
        hands.queue.done("a")
        pauses.append(hands.now - begun)
    assert pauses == [1, 2, 4, 8, 8]
    hands.queue.forget("a")
    hands.queue.retry("a")
    hands.now += 1
    assert hands.take() == "a"


def test_how_long_a_key_has_waited_is_told() -> None:
    hands = Hands()
    hands.queue.add("a")
    hands.now = 3
    hands.queue.add("a")
    assert hands.queue.get(wait=False) == ("a", 3)


def test_a_closed_queue_lets_everybody_go() -> None:
    hands = Hands()
    hands.queue.add("a")
    hands.queue.close()
    assert hands.queue.get() is None


class Use(RuleBasedStateMachine):
    """Whatever is asked for comes, and nobody has what another has."""

    def __init__(self) -> None:
        super().__init__()
        self.hands = Hands()
        self.wanted: set[str] = set()
        self.taken: set[str] = set()

    @rule(key=st.sampled_from("abc"))
    def ask(self, key: str) -> None:
        self.hands.queue.add(key)
        self.wanted.add(key)

    @rule(key=st.sampled_from("abc"), seconds=st.integers(0, 5))
    def ask_for_later(self, key: str, seconds: int) -> None:
        self.hands.queue.add_after(key, seconds)
        self.wanted.add(key)

    @rule()
    def take(self) -> None:
        key = self.hands.take()
        if key:
            assert key not in self.taken
            self.taken.add(key)
            self.wanted.discard(key)

    @rule(key=st.sampled_from("abc"))
    def finish(self, key: str) -> None:
        if key in self.taken:
            self.taken.discard(key)
            self.hands.queue.done(key)

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds: int) -> None:
        self.hands.now += seconds

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.hands.queue) <= 3

    def teardown(self) -> None:
        for key in sorted(self.taken):
            self.hands.queue.done(key)
        self.hands.now += 100
        assert {self.hands.take() for _ in range(4)} >= self.wanted


Use.TestCase.settings = settings(max_examples=examples(30), deadline=None)
TestUse = Use.TestCase
