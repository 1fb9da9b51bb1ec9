"""View of a job below a cell."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta import Job
from regatta.watching.curve import Curve
from regatta.watching.iterations import Iteration, Poll
from regatta.watching.view import JobView, PlainScreen
from tests.client.portal import job


class Screen:
    """Keeps the pages that it is given."""

    def __init__(self) -> None:
        self.pages: list[tuple[str, str, bool]] = []

    def show(self, html: str, text: str, *, final: bool) -> None:
        self.pages.append((html, text, final))


def iteration(step: int, cost: float) -> Iteration:
    return Iteration(step, 0.0, 1, "trainer-0", step, {"cost": cost})


def state(name: str = "RUNNING", **changed: object) -> Job:
    return Job.from_json(job(name, **changed))


def test_the_view_has_the_state_the_newest_values_and_a_link() -> None:
    screen = Screen()
    view = JobView(state(), "http://portal.test/n/ada/jobs/j1", screen, clock=lambda: 0.0)
    view.take(Poll(state(), [iteration(1, 2.0), iteration(2, 1.5)]))
    html, text, _ = screen.pages[-1]
    assert text == "digits: RUNNING  step 2, cost 1.5"
    assert 'href="http://portal.test/n/ada/jobs/j1"' in html
    assert "<polyline" in html


def test_names_from_the_portal_are_escaped() -> None:
    screen = Screen()
    JobView(state(name="<script>", why="<b>"), "javascript:<", screen, clock=lambda: 0.0).draw()
    assert "<script>" not in screen.pages[-1][0]
    assert "&lt;script&gt;" in screen.pages[-1][0]


def test_an_outage_is_shown_and_removed_again() -> None:
    screen = Screen()
    view = JobView(state(), "", screen, clock=lambda: 0.0)
    view.take(Poll(state(), problem="The portal cannot be reached."))
    view.take(Poll(state()))
    assert ["cannot be reached" in text for _, text, _ in screen.pages] == [True, False]


def test_pages_are_drawn_twice_a_second_and_at_a_change_of_state() -> None:
    screen, now = Screen(), [0.0]
    view = JobView(state(), "", screen, clock=lambda: now[0])
    for step in range(20):
        now[0] = step / 10
        view.take(Poll(state(), [iteration(step, 1.0)]))
    assert len(screen.pages) == 4
    view.take(Poll(state("SUCCEEDED")))
    assert len(screen.pages) == 5


def test_a_terminal_gets_a_line_at_a_change_of_state_and_every_five_seconds() -> None:
    lines: list[str] = []
    now = [0.0]
    screen = PlainScreen(lines.append, clock=lambda: now[0])
    for second in range(12):
        now[0] = second
        screen.show("", f"digits: {'QUEUED' if second < 2 else 'RUNNING'}  step {second}", final=False)
    screen.show("", "digits: SUCCEEDED  step 11", final=True)
    assert [line.split("  ")[0].split()[-1] for line in lines] == ["QUEUED", "RUNNING", "RUNNING", "SUCCEEDED"]


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(allow_infinity=True, allow_nan=True)), max_size=50))
def test_every_curve_is_well_formed(points: list[tuple[float, float]]) -> None:
    curve = Curve()
    for step, value in points:
        curve.add(step, value)
    if picture := curve.svg("cost & <more>"):
        ElementTree.fromstring(picture)


@pytest.mark.parametrize("count", [10, 100_000])
def test_a_curve_keeps_its_ends_within_bounded_memory(count: int) -> None:
    curve = Curve()
    for step in range(count):
        curve.add(step, float(step))
    assert len(curve.steps) <= 2001
    assert curve.steps[0] < count / 100
    assert curve.steps[-1] > count * 0.98 - 1
