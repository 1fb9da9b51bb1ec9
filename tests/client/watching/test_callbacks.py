"""Callbacks of a cell: what they get, what they draw, and what they raise."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from regatta.watching.callbacks import REDRAW_SECONDS, Callbacks
from regatta.watching.iterations import Iteration


def iteration(seq: int) -> Iteration:
    return Iteration(seq, 0.0, 1, "trainer-0", seq, {"cost": 1 / seq, "accuracy": 0.5})


class Picture:
    """Something that a notebook can show."""

    def _repr_html_(self) -> str:
        return "<b>picture</b>"


class Clock:
    def __init__(self, step: float) -> None:
        self.now, self._step = 100.0, step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


def test_a_callback_gets_the_cost_and_every_other_metric() -> None:
    seen: list[Iteration] = []
    Callbacks(seen.append).take(iteration(2))
    assert (seen[0].cost, seen[0]["accuracy"], seen[0].step) == (0.5, 0.5, 2)


def test_an_exception_is_shown_once_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def divides(_: Iteration) -> None:
        raise ZeroDivisionError("by nothing")

    callbacks = Callbacks(divides)
    for seq in (1, 2, 3):
        callbacks.take(iteration(seq))
    shown = capsys.readouterr().err
    assert (shown.count("ZeroDivisionError: by nothing"), shown.count("in divides")) == (1, 1)
    assert "regatta/watching/callbacks.py" not in shown


def test_after_an_exception_the_message_has_the_cursor_to_go_on_from(capsys: pytest.CaptureFixture[str]) -> None:
    def raises_at_3(each: Iteration) -> None:
        if each.seq == 3:
            raise ValueError

    callbacks = Callbacks(raises_at_3)
    for seq in (1, 2, 3, 4):
        callbacks.take(iteration(seq))
    assert "job.watch(callback, after=2)" in capsys.readouterr().err


def test_what_a_callback_returns_is_shown() -> None:
    shown: list[Any] = []
    picture = Picture()
    Callbacks(lambda _: picture, show=shown.append).take(iteration(1))
    assert shown == [picture]


@pytest.mark.parametrize("value", [None, 1.5, "text", [1], {"cost": 1}])
def test_other_values_are_not_shown(value: object) -> None:
    shown: list[Any] = []
    Callbacks(lambda _: value, show=shown.append).take(iteration(1))
    assert shown == []


def test_drawing_is_limited_while_every_iteration_is_passed_and_the_last_drawing_is_shown() -> None:
    shown: list[Any] = []
    made: list[Picture] = []
    callbacks = Callbacks(lambda _: made.append(Picture()) or made[-1], show=shown.append, clock=Clock(0.001))
    for seq in range(1, 100):
        callbacks.take(iteration(seq))
    callbacks.finish()
    assert (len(made), shown[-1]) == (99, made[-1])
    assert len(shown) <= 0.3 / REDRAW_SECONDS + 2


class Pyplot(ModuleType):
    """Stand-in for ``matplotlib.pyplot`` with numbered figures."""

    def __init__(self, *numbers: int) -> None:
        super().__init__("matplotlib.pyplot")
        self.figures = {number: type("Figure", (), {"number": number})() for number in numbers}

    def get_fignums(self) -> list[int]:
        return list(self.figures)

    def gcf(self) -> Any:
        return list(self.figures.values())[-1]

    def close(self, figure: Any) -> None:
        self.figures.pop(getattr(figure, "number", figure))

    def figure(self, number: int) -> Any:
        return self.figures.setdefault(number, type("Figure", (), {"number": number})())


def test_figures_that_a_callback_leaves_open_replace_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot, shown = Pyplot(7), []
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
    callbacks = Callbacks(
        lambda each: [pyplot.figure(10 + each.seq)], show=lambda figure: shown.append(figure.number), clock=Clock(1)
    )
    for seq in (1, 2, 3):
        callbacks.take(iteration(seq))
    assert (shown, pyplot.get_fignums()) == ([11, 12, 13], [7, 13])
    callbacks.finish()
    assert pyplot.get_fignums() == [7]
