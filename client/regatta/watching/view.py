"""View of a running job below a cell: state, newest values and the curve of the cost, updated in place."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from regatta.series import package
from regatta.watching import kernel
from regatta.watching.curve import Curve
from regatta.watching.iterations import Poll

if TYPE_CHECKING:
    from regatta.job import Job

REDRAW_SECONDS = 0.5
_COST = "cost"
# Shows what the kernel sends. The page loads nothing else.
_SCRIPT = """
export default { render({ model, el }) {
  const draw = () => { el.innerHTML = model.get("page"); };
  model.on("change:page", draw);
  draw();
} };
"""


class Screen(Protocol):
    """Place that shows the newest of several pages."""

    def show(self, html: str, text: str, *, final: bool) -> None: ...


class JobView:
    """Collects what is known about a job and draws it, at most twice a second. ``clock``: monotonic seconds."""

    def __init__(self, job: Job, url: str, screen: Screen, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._screen = screen
        self._clock = clock
        self._curve = Curve()
        self._drawn: float | None = None
        self._shown: tuple[str, str] | None = None
        self.poll = Poll(job)
        self.values: dict[str, float] = {}
        self.step = 0.0

    def take(self, poll: Poll) -> None:
        """Add what a poll found. Draws if it is time, and at once when the state has changed."""
        changed = (poll.job.state, poll.problem) != (self.poll.job.state, self.poll.problem)
        self.poll = poll
        for iteration in poll.iterations:
            self.values.update(iteration.metrics)
            self.step = iteration.step
            if iteration.cost is not None:
                self._curve.add(iteration.step, iteration.cost)
        if changed or self._drawn is None or self._clock() - self._drawn >= REDRAW_SECONDS:
            self.draw()

    def draw(self, *, final: bool = False) -> None:
        """Draw if something has changed. ``final``: nothing will follow, and the page is kept in the notebook."""
        self._drawn = self._clock()
        page = self.html(), self.text()
        if page != self._shown or final:
            self._shown = page
            self._screen.show(*page, final=final)

    def html(self) -> str:
        job = self.poll.job
        link = f'<a href="{escape(self._url)}" target="_blank" rel="noopener">{escape(job.name)}</a>'
        problem = f"<div>{escape(self._problem())}</div>" if self.poll.problem else ""
        return (
            f'<div style="font:13px sans-serif"><div>{link} · <b>{escape(job.state)}</b> '
            f"{escape(self._numbers())}</div><div>{escape(job.why)}</div>{problem}{self._curve.svg(_COST)}</div>"
        )

    def text(self) -> str:
        job = self.poll.job
        parts = [f"{job.name}: {job.state}", self._numbers(), self._problem() if self.poll.problem else ""]
        return "  ".join(part for part in parts if part)

    def _numbers(self) -> str:
        if not self.values:
            return ""
        values = (f"{name} {value:.5g}" for name, value in sorted(self.values.items()))
        return f"step {self.step:g}, {', '.join(values)}"

    def _problem(self) -> str:
        return f"{self.poll.problem} The job is not affected; trying again."


class PlainScreen:
    """Prints a line when it differs from the one before, for terminals and programs. At most one in ``every`` s."""

    def __init__(
        self, write: Callable[[str], object] | None = None, every: float = 5.0, clock: Callable[[], float] | None = None
    ) -> None:
        self._write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self._every = every
        self._clock = clock or time.monotonic
        self._state = ""
        self._printed = -every

    def show(self, html: str, text: str, *, final: bool) -> None:
        state, now = text.split("  ")[0], self._clock()
        if final or state != self._state or now - self._printed >= self._every:
            self._state, self._printed = state, now
            self._write(text)


class CellScreen:
    """Shows pages in the output of a cell. With anywidget the browser gets the current page also after a reload."""

    def __init__(self) -> None:
        self._widget = _widget() if importlib.util.find_spec("anywidget") else None
        first = self._widget if self._widget is not None else _Page("", "")
        self._handle: Any = package("IPython.display").display(first, display_id=True)

    def show(self, html: str, text: str, *, final: bool) -> None:
        if self._widget is not None:
            self._widget.page = html
        if self._widget is None or final:
            # The saved notebook contains the last page itself, and needs no kernel to show it.
            self._handle.update(_Page(html, text))


class _Page:
    def __init__(self, html: str, text: str) -> None:
        self._bundle = {"text/html": html, "text/plain": text}

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return self._bundle


def _widget() -> Any:
    import anywidget
    import traitlets

    class JobPage(anywidget.AnyWidget):  # type: ignore[misc, unused-ignore]
        _esm = _SCRIPT
        page = traitlets.Unicode("").tag(sync=True)

    return JobPage()


def screen_here() -> Screen:
    """Return the screen of this process: the cell of a kernel, or lines on standard error."""
    return CellScreen() if kernel.in_kernel() else PlainScreen()
