"""Watching a job from a cell: the view, the callback, Ctrl-C, and the end of the job."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from regatta.errors import EXIT_OF_STATE, EXIT_OK
from regatta.watching.callbacks import Callback, Callbacks
from regatta.watching.errors import JobFailed
from regatta.watching.iterations import polls
from regatta.watching.view import JobView, Screen, screen_here

if TYPE_CHECKING:
    from regatta.job import Job

_LAST_LINES = 200


class Watching:
    """Follows one job. ``cursor`` is the last iteration that the callback got; ``thread`` is None while it waits."""

    def __init__(
        self, job: Job, callback: Callback | None = None, *, after: int = 0, screen: Screen | None = None
    ) -> None:
        self._job = job
        self._callbacks = Callbacks(callback, after)
        self._view = JobView(job, job.url, screen or screen_here())
        self._after = after
        self._stop = threading.Event()
        self.thread: threading.Thread | None = None

    @property
    def cursor(self) -> int:
        return self._callbacks.cursor

    @property
    def job(self) -> Job:
        """The job in the state that was seen last."""
        return self._view.poll.job

    def wait(self) -> Job:
        """Follow until the job has ended. Ctrl-C ends the watching and leaves the job running."""
        try:
            self._follow()
        except KeyboardInterrupt:
            print(self._interrupted(), file=sys.stderr)
        finally:
            self._callbacks.finish()
            self._view.draw(final=True)
        return self.job

    def start(self) -> Watching:
        """Follow in a thread. What it prints appears below the cell that started it."""
        context = contextvars.copy_context()
        self.thread = threading.Thread(target=context.run, args=(self.wait,), name="regatta-watching", daemon=True)
        self.thread.start()
        return self

    def stop(self) -> None:
        """End the watching after the current poll. The job keeps running."""
        self._stop.set()

    def _follow(self) -> None:
        for poll in polls(self._job, self._after, stop=self._stop.is_set):
            for iteration in poll.iterations:
                self._callbacks.take(iteration)
            self._callbacks.draw()
            self._view.take(poll)

    def _interrupted(self) -> str:
        job = self.job
        again = f"job.watch(callback, after={self.cursor})" if self.cursor else "job.watch()"
        return (
            f"Stopped watching. The job {job.name} keeps running. Watch again: {again}. "
            f"Cancel it: job.cancel(), or regatta cancel {job.id}"
        )


def watched(
    job: Job,
    on_iteration: Callback | None = None,
    *,
    after: int = 0,
    wait: bool = True,
    translate: Callable[[str], str] = str,
) -> Job:
    """Watch a job, see ``Job.watch``. ``translate``: of a line of its traceback, for the person who wrote a cell."""
    watching = Watching(job, on_iteration, after=after)
    if not wait:
        watching.start()
        return job
    return checked(watching.wait(), translate)


def checked(job: Job, translate: Callable[[str], str] = str) -> Job:
    """Return a job that has succeeded or still runs. Raises JobFailed, with the traceback of its log, for others."""
    if EXIT_OF_STATE.get(job.state, EXIT_OK) == EXIT_OK:
        return job
    raise JobFailed(job, traceback_of(job, translate))


def traceback_of(job: Job, translate: Callable[[str], str]) -> str:
    """Return the last traceback in the log of a job, with each line translated; empty if there is none."""
    lines = job.last_lines(_LAST_LINES)
    starts = [number for number, line in enumerate(lines) if line.text.startswith("Traceback (most recent call last)")]
    if not starts:
        return ""
    first = lines[starts[-1]]
    found: list[str] = []
    for line in lines[starts[-1] :]:
        if line.replica != first.replica:
            continue
        found.append(translate(line.text))
        if len(found) > 1 and not line.text.startswith(" "):
            break
    return "\n".join([f"{first.replica}:", *found])
