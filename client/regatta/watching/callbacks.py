"""Calls of a person's callback: what it draws is shown in place, and what it raises is shown once."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from regatta.series import package
from regatta.watching import kernel
from regatta.watching.iterations import Iteration

REDRAW_SECONDS = 0.25
Callback = Callable[[Iteration], object]
_SHOWN_BY = ("savefig", "_repr_mimebundle_", "_repr_html_", "_repr_svg_", "_repr_png_")


class Callbacks:
    """Calls ``callback`` with every iteration. After its first exception it is not called again.

    A figure that it returns, or that it leaves open in pyplot, is shown below the cell and replaces the one before.
    Every iteration is passed on; figures are shown at most four times a second, and the last one always.
    ``cursor`` is the number of the last iteration that was passed.
    """

    def __init__(
        self,
        callback: Callback | None,
        after: int = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
        show: Callable[[Any], None] | None = None,
    ) -> None:
        self._callback = callback
        self._clock = clock
        self._show = show or (_Slot().show if kernel.in_kernel() else None)
        self._waiting: Any = None
        self._shown = -REDRAW_SECONDS
        self._pyplot = _Pyplot()
        self.cursor = after
        self.error: Exception | None = None

    def take(self, iteration: Iteration) -> None:
        """Pass one iteration on. Raises nothing."""
        if self._callback is None or self.error is not None:
            return
        try:
            result = self._callback(iteration)
        except Exception as error:  # noqa: BLE001  it is the person's code, and the job goes on
            self.error = error
            self._explain(error, iteration)
            return
        self.cursor = iteration.seq
        if callback_drew := _figure_of(result) or self._pyplot.current():
            self._waiting = callback_drew
        if self._clock() - self._shown >= REDRAW_SECONDS:
            self.draw()

    def draw(self) -> None:
        """Show the newest figure that is not shown yet."""
        if self._waiting is not None and self._show is not None:
            self._show(self._waiting)
            self._waiting, self._shown = None, self._clock()

    def finish(self) -> None:
        """Show the last figure and close those of pyplot, which the notebook would show a second time."""
        self.draw()
        if self._show is not None:
            self._pyplot.close()

    def _explain(self, error: Exception, iteration: Iteration) -> None:
        """Print the traceback without the frame of this module."""
        behind = error.__traceback__.tb_next if error.__traceback__ is not None else None
        summary = traceback.TracebackException(type(error), error, behind)
        for frame in summary.stack:
            _ = frame.line  # is read from the file before that gets another name
            frame.filename = kernel.label(frame.filename)
        print("".join(summary.format()), file=sys.stderr)
        print(
            f"The callback raised at step {iteration.step:g} and is not called again. The job keeps running. To go on "
            f"with a corrected callback: job.watch(callback, after={self.cursor})",
            file=sys.stderr,
        )


class _Slot:
    """Output below the cell that holds one figure at a time."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, figure: Any) -> None:
        if self._handle is None:
            self._handle = package("IPython.display").display(figure, display_id=True)
        else:
            self._handle.update(figure)


class _Pyplot:
    """Figures that the callback leaves open in pyplot. Those that were open before are left alone, unless it draws on
    one."""

    def __init__(self) -> None:
        self._before = set(self._numbers())
        self._current: Any = None

    def current(self) -> Any:
        """Return the current figure, or None. Older ones of the callback are closed, so that memory stays bounded."""
        numbers = self._numbers()
        if not numbers:
            return None
        pyplot = sys.modules["matplotlib.pyplot"]
        self._current = pyplot.gcf()
        for number in set(numbers) - self._before - {self._current.number}:
            pyplot.close(number)
        return self._current

    def close(self) -> None:
        """Close the figure that was shown: the notebook would show it a second time at the end of the cell."""
        if self._current is not None:
            sys.modules["matplotlib.pyplot"].close(self._current)

    def _numbers(self) -> list[int]:
        pyplot = sys.modules.get("matplotlib.pyplot")
        return list(pyplot.get_fignums()) if pyplot is not None else []


def _figure_of(result: object) -> Any:
    """Return what a callback returned if a notebook can show it, and None for other values."""
    if hasattr(result, "get_figure"):  # axes and lines of matplotlib
        return result.get_figure()
    return result if any(hasattr(result, name) for name in _SHOWN_BY) else None
