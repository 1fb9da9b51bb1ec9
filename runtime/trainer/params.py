"""The parameters as user code sees them: a mapping of arrays that pushes and pulls change in place.

``Params`` checks the arguments of user code. A ``Store`` holds the parameters: ``LocalStore`` in this process,
``ServerStore`` on parameter servers, either of them behind ``Rounds``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.checkpoint.data_position import NO_TASK, Position
from runtime.errors import UsageError
from runtime.messages import paragraph
from runtime.messages import training as messages
from runtime.parameters.array_blocks import all_finite
from runtime.parameters.declaration import SYNC, Declaration, Mode, Tensor
from runtime.parameters.embedding_tables import Rows, Table
from runtime.parameters.initializers import Initial, Uniform
from runtime.parameters.messages import FOREVER
from runtime.parameters.optimisers import Optimiser
from runtime.trainer.argument_checks import (
    Arrays,
    flat_gradient,
    named_arrays,
    refusals_as_usage_errors,
    writable_parameter,
)
from runtime.trainer.local_sgd import Rounds
from runtime.trainer.parameter_store import NO_ROWS, Pushes, Store
from runtime.trainer.step_times import Part, StepTimes
from runtime.trainer.tables import SharedTable

Array = NDArray[Any]

# The handling of a gradient with NaN or infinity: an error, a step that changes nothing, or zeros in place of them.
RAISE, REJECT, ZERO = "raise", "reject", "zero"
NONFINITE = (RAISE, REJECT, ZERO)

log = logging.getLogger("regatta")


class Params(Mapping[str, Array]):
    """A model: arrays by name. References to the arrays stay valid; every pull writes into them.

    ``nonfinite`` is one of ``NONFINITE``. ``guard`` wraps calls that may detect that other processes are lost. ``seed``
    is used for tables without their own. ``times`` measures the calls. With ``mapped`` the arrays are different from
    the given ones, and read-only. For servers on this host, the arrays are in the servers' memory, and a pull copies
    nothing.
    """

    def __init__(
        self,
        arrays: Arrays,
        store: Store,
        optimiser: Optimiser,
        mode: str = SYNC,
        nonfinite: str = RAISE,
        guard: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
        seed: int = 0,
        mapped: bool = False,
        times: StepTimes | None = None,
    ) -> None:
        self._arrays = {name: writable_parameter(name, array) for name, array in named_arrays(arrays).items()}
        self._nonfinite = nonfinite
        self._guard = guard
        self._times = times or StepTimes()
        self._pass: int | None = None
        self._buffers: dict[str, Array] | None = None
        self._position: Position | None = None  # of the current batch
        self._done: list[int] = []  # finished tasks that are not reported to the servers yet
        self._pusher = ThreadPoolExecutor(1, thread_name_prefix="push")
        self._pushing: Future[None] | None = None
        self._staged: dict[str, _Staged] = {}  # gradients of the next push that are being sent
        tensors = tuple(Tensor(name, array.shape, array.dtype.str) for name, array in self._arrays.items())
        try:
            declaration = Declaration.from_json(Declaration(tensors, optimiser, mode).to_json())
        except ValueError as error:
            raise UsageError(str(error)) from None
        if nonfinite not in NONFINITE:
            raise UsageError(f"nonfinite is one of {', '.join(NONFINITE)}, not {nonfinite!r}.")
        self._mode = Mode.parse(mode)
        self._optimiser = optimiser
        self._seed = seed
        self._tables: dict[str, SharedTable] = {}
        store.on_sent = lambda: self._times.switch(Part.WAIT)
        self._store = Rounds(store) if self._mode.local_steps else store
        values = self._mapped(declaration) if mapped else [array.reshape(-1) for array in self._arrays.values()]
        with self._guard(), refusals_as_usage_errors():
            self._store.start(declaration, values)

    def _mapped(self, declaration: Declaration) -> Sequence[Array]:
        """Place the values in arrays of the store; user code gets read-only views of these."""
        homes = self._store.home(declaration)
        for (name, array), home in zip(self._arrays.items(), homes, strict=True):
            home[:] = array.reshape(-1)
            self._arrays[name] = home.reshape(array.shape)
            self._arrays[name].flags.writeable = False
        return homes

    def __getitem__(self, name: str) -> Array:
        try:
            return self._arrays[name]
        except KeyError:
            raise KeyError(messages.PARAMETER_UNKNOWN(name=f"{name!r}", names=", ".join(self._arrays))) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def version(self) -> int:
        """The number of updates of the parameters, by all trainers together."""
        return self._store.version

    def push_pull(self, grads: Arrays, n: int = 1) -> int:
        """Push gradients and pull the updated parameters; return the version.

        ``grads`` has an array of the parameter's shape and type for every parameter: the mean over ``n`` samples. In
        sync mode this waits for the other trainers' gradients. Raises UsageError with a message.
        """
        return self._push(grads, n, pull=True)

    def push_async(self, grads: Arrays, n: int = 1) -> Pending:
        """Begin a ``push_pull`` and return at once, so that this thread can prepare the next batch meanwhile.

        Until ``result()`` of the returned object has returned, neither the gradients may change nor the parameters be
        used. Any other call of this object waits for that first. In every mode the outcome is ``push_pull``'s, bit for
        bit.
        """
        with self._times.during(Part.PUSH):
            gradients, samples, rows = self._prepared(grads, n)
        self._pushing = self._pusher.submit(self._store.push, gradients, samples, True, rows)
        return Pending(self._pushing, self.settle)

    def stage(self, name: str, grad: Array) -> None:
        """Begin to push the gradient of one parameter, while this thread computes those of others.

        The push must follow with the same array, which must not be changed before. If it is staged again, its contents
        at that time count. Raises UsageError.
        """
        if name not in self._arrays:
            raise UsageError(messages.PARAMETER_UNKNOWN(name=f"{name!r}", names=", ".join(self._arrays)))
        gradient = flat_gradient(name, grad, self._arrays[name])
        self.settle()
        if self._pass is None:
            self.begin_pass(0)
        number = list(self._arrays).index(name)
        self._staged[name] = _Staged(gradient, self._pusher.submit(self._store.stage, number, gradient))

    def gradients(self) -> dict[str, Array]:
        """Zeroed arrays to write gradients into, by name.

        Any arrays can be pushed. The servers of this host can read these directly, which saves a copy of all gradients
        in every step. Every call returns the same arrays.
        """
        if self._buffers is None:
            buffers = zip(self._arrays.items(), self._store.gradient_buffers(), strict=True)
            self._buffers = {name: buffer.reshape(array.shape) for (name, array), buffer in buffers}
        return dict(self._buffers)

    def settle(self) -> int:
        """Wait for a push that was begun, if there is one; return the version."""
        pushing, self._pushing = self._pushing, None
        if pushing is not None:
            with self._times.during(Part.WAIT), self._guard(), refusals_as_usage_errors():
                pushing.result()
        return self.version

    def push(self, grads: Arrays, n: int = 1) -> int:
        """Push gradients only; ``pull`` fetches the result."""
        return self._push(grads, n, pull=False)

    def pull(self) -> int:
        """Fetch the present parameters into the arrays; return the version."""
        self.settle()
        with self._times.during(Part.WAIT), self._guard(), refusals_as_usage_errors():
            self._store.pull()
        return self.version

    def _push(self, grads: Arrays, samples: int, pull: bool) -> int:
        with self._times.during(Part.PUSH), self._guard(), refusals_as_usage_errors():
            gradients, samples, rows = self._prepared(grads, samples)
            self._store.push(gradients, samples, pull, rows)
        return self.version

    def _prepared(self, grads: Arrays, samples: int) -> tuple[list[Array], int, Pushes]:
        """Check gradients, samples and rows of tables, and begin a pass if none is; return them."""
        if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or samples < 1:
            raise UsageError(messages.PUSH_SAMPLES_INVALID(value=f"{samples!r}"))
        staged = self._take_staged()
        checked = self._checked(grads)
        self.settle()
        rows = self._finite_rows(
            {one.table: pushed for one in self._tables.values() if (pushed := one.take_pushed()) is not None}
        )
        gradients = [] if rows is None else self._finite(checked, staged)
        if self._pass is None:
            self.begin_pass(0)
        self._store_position()
        return (gradients, int(samples), rows) if rows is not None and gradients else ([], 0, NO_ROWS)

    def _checked(self, grads: Arrays) -> dict[str, Array]:
        if not isinstance(grads, Mapping):
            raise UsageError(messages.GRADIENTS_NOT_A_DICT(type=type(grads).__name__))
        if unknown := [name for name in grads if name not in self._arrays]:
            raise UsageError(messages.PARAMETER_UNKNOWN(name=f"{unknown[0]!r}", names=", ".join(self._arrays)))
        if missing := [name for name in self._arrays if name not in grads]:
            raise UsageError(messages.GRADIENT_MISSING(name=f"{missing[0]!r}"))
        return {name: flat_gradient(name, grads[name], array) for name, array in self._arrays.items()}

    def _take_staged(self) -> Mapping[str, _Staged]:
        """The gradients staged for the present push, after all are sent."""
        staged, self._staged = self._staged, {}
        wait(one.finite for one in staged.values())
        return staged

    def _finite(self, gradients: dict[str, Array], staged: Mapping[str, _Staged]) -> list[Array]:
        """The gradients without NaN and infinity, according to ``nonfinite``; empty if the step is left out."""
        ahead = {name: one.finite.result() for name, one in staged.items() if one.is_of(gradients[name])}
        odd = {
            name: number
            for number, (name, gradient) in enumerate(gradients.items())
            if not (ahead[name] if name in ahead else self._store.take(number, gradient))
        }
        for name, number in odd.items():
            if not self._zeroed(repr(name)):
                return []
            gradients[name] = np.where(np.isfinite(gradients[name]), gradients[name], 0)
            self._store.take(number, gradients[name])
        return list(gradients.values())

    def _finite_rows(self, rows: Pushes) -> Pushes | None:
        """The same for rows of tables; None if the step is left out."""
        kept = dict(rows)
        for table, some in rows.items():
            if not all_finite(some.values):
                if not self._zeroed(f"table {table.name!r}"):
                    return None
                kept[table] = Rows(some.ids, np.where(np.isfinite(some.values), some.values, 0))
        return kept

    def _zeroed(self, what: str) -> bool:
        """Whether NaN and infinity in the gradient of ``what`` are zeroed; otherwise the step is left out."""
        if self._nonfinite == RAISE:
            raise UsageError(paragraph(messages.GRADIENT_NOT_FINITE(name=what), messages.LOWER_LEARNING_RATE()))
        done = "zeroed" if self._nonfinite == ZERO else "left out"
        log.warning("The gradient of %s held NaN or infinity after version %d; %s.", what, self.version, done)
        return self._nonfinite == ZERO

    # --- Tables ------------------------------------------------------------------------------------------------------
    def table(
        self, name: str, dim: int, init: Initial | None = None, opt: Optimiser | None = None, seed: int | None = None
    ) -> SharedTable:
        """A table of rows of ``dim`` float32 by id, such as embeddings. The same in all trainers.

        The initial values of a row depend on ``init`` (default: ``Uniform(0.05)``), ``seed`` (default: the job's) and
        its id alone. ``opt`` updates rows (default: the parameters' optimiser). Raises UsageError.
        """
        if not isinstance(name, str) or not name or name in self._tables:
            raise UsageError(messages.TABLE_NAME_INVALID(name=f"{name!r}"))
        if not isinstance(init, Initial | None) or not isinstance(opt, Optimiser | None):
            raise UsageError(messages.TABLE_OPTIONS_INVALID(name=f"{name!r}"))
        try:
            table = Table(name, dim, init or Uniform(), opt or self._optimiser, self._seed if seed is None else seed)
        except ValueError as error:
            raise UsageError(str(error)) from None
        self._tables[name] = SharedTable(table, self._fetch, self._fetch_all)
        return self._tables[name]

    @property
    def tables(self) -> Mapping[str, SharedTable]:
        """The tables that this trainer has named."""
        return self._tables

    def _fetch(self, table: Table, ids: Array) -> Array:
        self.settle()  # without beginning a pass: reading between passes must not delay others
        with self._times.during(Part.WAIT), self._guard(), refusals_as_usage_errors():
            return self._store.rows(table, ids)

    def _fetch_all(self, table: Table) -> Rows:
        self.settle()
        with self._guard(), refusals_as_usage_errors():
            return self._store.trained_rows(table)

    def settled_step(self) -> int | None:
        """Wait for a push that was begun. Return the version if all trainers share it, else None: steps differ."""
        version = self.settle()
        return version if self._mode.in_step else None

    # --- Passes, announced by the loop over the data ------------------------------------------------------------------
    def begin_pass(self, number: int) -> None:
        """Announce pushes of pass ``number``, unless already done. The values are up to date afterwards."""
        self.settle()
        if self._pass != number:
            with self._times.during(Part.WAIT), self._guard(), refusals_as_usage_errors():
                self._store.begin_pass(number)
            self._pass = number

    def set_position(self, pass_id: int, task: int, batches: int) -> None:
        """Set the position: the current batch is number ``batches`` of a task, counted from 1."""
        self._position = Position(pass_id, task, batches)

    def finish(self, pass_id: int, task: int) -> None:
        """Record that all of a task has been pushed, after waiting for its last push."""
        self.settle()
        self._position = Position(pass_id, NO_TASK, 0)
        self._done.append(task)

    def _store_position(self) -> None:
        if self._position is not None:
            self._store.set_position(self._position._replace(done=tuple(self._done)))
            self._done.clear()

    def end_pass(self, number: int) -> None:
        """Announce that no push of pass ``number`` follows for now: the others need not wait."""
        self.settle()
        self._store_position()
        with self._times.during(Part.WAIT), self._guard(), refusals_as_usage_errors():
            self._store.end_pass(number)
        self._pass = None

    def leave(self) -> None:
        """Announce that no push follows at all."""
        self.end_pass(FOREVER)


class _Staged(NamedTuple):
    """A gradient that is being sent, and whether it is finite.

    It is referenced so that its memory is not used again.
    """

    gradient: Array
    finite: Future[bool]

    def is_of(self, gradient: Array) -> bool:
        return bool(self.gradient.ctypes.data == gradient.ctypes.data)


class Pending:
    """The result of ``params.push_async``. The parameters are inconsistent until ``result`` has returned."""

    def __init__(self, future: Future[None], settle: Callable[[], int]) -> None:
        self._future = future
        self._settle = settle

    def done(self) -> bool:
        """Whether ``result`` would return at once."""
        return self._future.done()

    def result(self) -> int:
        """Wait, then return the version. Raises what ``push_pull`` would have raised."""
        return self._settle()
