from __future__ import annotations

from runtime.coordination.base import StoreUnavailable
from runtime.master.event_log import Pace, StoreOutage
from runtime.master.types import Happening
from runtime.messages import training as messages
from tests.messages import mentions


def is_logged(pace: Pace, now: float, *, frequent: bool = True, kind: str = "pass") -> bool:
    return bool(list(pace.let_through([Happening(kind, "something", frequent=frequent)], now)))


def test_frequent_happenings_are_logged_once_a_second():
    pace = Pace()
    times = [step / 10 for step in range(31)]
    assert [now for now in times if is_logged(pace, now)] == [0.0, 1.0, 2.0, 3.0]


def test_happenings_that_are_not_frequent_are_always_logged():
    pace = Pace()
    assert all(is_logged(pace, now, frequent=False) for now in (0.0, 0.1, 0.2))


def test_a_frequent_happening_also_waits_for_a_rare_one_of_its_kind():
    pace = Pace()
    is_logged(pace, 0.0, frequent=False)
    assert not is_logged(pace, 0.5)


def test_another_kind_is_not_held_back():
    pace = Pace()
    is_logged(pace, 0.0)
    assert is_logged(pace, 0.1, kind="task")


class TestAStoreOutage:
    def test_it_is_reported_at_its_first_failure_only(self):
        outage, away = StoreOutage(), StoreUnavailable("The store is away.")
        (begun,) = outage.begin(away, 5.0)
        assert (begun.kind, begun.notable) == ("store", True)
        assert begun.text == messages.STORE_AWAY_TRAINING_CONTINUES(why="The store is away.")
        assert outage.begin(away, 6.0) == ()

    def test_its_end_is_reported_once_with_its_length(self):
        outage = StoreOutage()
        outage.begin(StoreUnavailable("The store is away."), 5.0)
        outage.begin(StoreUnavailable("The store is away."), 9.0)
        (ended,) = outage.end(17.0)
        assert mentions(ended.text, messages.STORE_RESPONDS_AGAIN)
        assert outage.end(18.0) == ()

    def test_a_store_that_always_answers_is_not_reported(self):
        assert StoreOutage().end(1.0) == ()
