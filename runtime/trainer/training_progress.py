"""The passes and batches of a loop, announced to the parameters and to the listeners of user code."""

from __future__ import annotations

from collections.abc import Callable

from runtime.trainer.events import BeginIteration, BeginPass, EndIteration, EndPass, Listeners
from runtime.trainer.metric_sinks import Reports
from runtime.trainer.params import Params
from runtime.trainer.tasks.task_client import Task


class TrainingProgress:
    """The pass and the batch that a trainer is at.

    Listeners get the beginning of each pass once, and batches between two events, counted from 0 in each pass. For the
    parameters a pass ends also while this trainer waits, and begins again with a task that returns from a lost trainer.
    ``params`` returns None as long as the script has no parameters.
    """

    def __init__(self, params: Callable[[], Params | None], listeners: Listeners, reports: Reports) -> None:
        self._params = params
        self._listeners = listeners
        self._reports = reports
        self._pass: int | None = None  # the pass that was begun and not ended
        self._reported_pass = -1  # the last pass whose beginning was reported
        self._batch = 0

    # --- Batches -----------------------------------------------------------------------------------------------------
    def begin_batch(self, task: Task, count: int) -> None:
        """Begin batch ``count`` of a task, counted from 1: what is pushed from now on is of this batch."""
        if (params := self._params()) is not None:
            params.set_position(task.pass_id, task.task_id, count)
        number, self._batch = self._batch, self._batch + 1
        self._listeners.notify(BeginIteration(self._reported_pass, number))
        self._reports.last.clear()

    def end_batch(self) -> None:
        """End the batch that was begun, with the values that were reported meanwhile."""
        values = dict(self._reports.last)
        cost = values.pop("cost", float("nan"))
        self._listeners.notify(EndIteration(self._reported_pass, self._batch - 1, cost, values))

    def finish(self, task: Task) -> None:
        """Record that all of a task has been pushed."""
        if (params := self._params()) is not None:
            params.finish(task.pass_id, task.task_id)

    # --- Passes ------------------------------------------------------------------------------------------------------
    def begin_pass(self, pass_id: int) -> None:
        self._pass = pass_id
        self._report_beginning(pass_id)
        if (params := self._params()) is not None:
            params.begin_pass(pass_id)

    def end_pass(self, pass_id: int) -> None:
        """End a pass. A pass in which this trainer had nothing to do is begun and ended at once."""
        self._pass = None
        if (params := self._params()) is not None:
            params.end_pass(pass_id)
        self._report_beginning(pass_id)
        self._listeners.notify(EndPass(pass_id, dict(self._reports.last)))

    def suspend_pass(self) -> None:
        """Let the other trainers go on while this one has no task."""
        if self._pass is not None and (params := self._params()) is not None:
            params.end_pass(self._pass)
            self._pass = None

    def leave(self) -> None:
        """Announce that no push follows at all."""
        if (params := self._params()) is not None:
            params.leave()

    def _report_beginning(self, pass_id: int) -> None:
        if pass_id > self._reported_pass:
            self._reported_pass, self._batch = pass_id, 0
            self._listeners.notify(BeginPass(pass_id))
