"""Plotly figure of a job's metrics. In a notebook it updates itself while the job runs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regatta.series import Series, package
from regatta.terminal.watch import Watch

if TYPE_CHECKING:
    from regatta.job import Job

# As many as a screen has columns: more would not be visible.
BUCKETS = 1000
POLL_SECONDS = 1.0


def figure_of(job: Job, keys: Sequence[str], *, live: bool) -> Any:
    """Return a figure with a line per key. Raises NotInstalled without plotly.

    It is a ``FigureWidget`` that is kept up to date if the job is still running, ``live`` is true and anywidget is
    installed; else a ``Figure`` of the current values.
    """
    graph = package("plotly.graph_objects")
    moves = live and not job.ended and importlib.util.find_spec("anywidget") is not None
    figure = (graph.FigureWidget if moves else graph.Figure)()
    for key in keys:
        figure.add_scatter(name=key, mode="lines", x=[], y=[])
    figure.update_layout(title=f"{job.name} ({job.namespace})", xaxis_title="step", template="plotly_white")
    if moves:
        # Stored in the figure, so that the watch ends with it.
        figure._regatta_watch = Watch(lambda enough: snapshots(job, keys, enough), lambda now: draw(figure, now))
    else:
        draw(figure, snapshot(job, keys))
    return figure


def draw(figure: Any, now: Mapping[str, Series]) -> None:
    """Put the current values into the figure, in one message to the browser."""
    with figure.batch_update():
        for line in figure.data:
            line.x, line.y = now[line.name].x, now[line.name].last


def snapshot(job: Job, keys: Sequence[str]) -> dict[str, Series]:
    return {key: job.metrics(key, buckets=BUCKETS) for key in keys}


def snapshots(job: Job, keys: Sequence[str], enough: Callable[[], bool]) -> Iterator[Mapping[str, Series]]:
    """Yield the values whenever they have changed, until the job has ended."""
    shown: Mapping[str, Series] = {}
    while not enough():
        ended = job.refresh().ended
        now = snapshot(job, keys)
        if now != shown:
            shown = now
            yield now
        if ended:
            return
        job.sleep(POLL_SECONDS)
