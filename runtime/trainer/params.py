"""The parameters as user code sees them: a mapping of arrays that pushes and pulls change in place.

``Params`` checks the arguments of user code. A ``Store`` holds the parameters: ``LocalStore`` in this process,
``ServerStore`` on parameter servers, either of them behind ``Rounds``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime import contract
from runtime.checkpoint.data_position import NO_TASK, Position
from runtime.errors import Lost, Refused, RegattaError, UsageError
from runtime.messages import paragraph
from runtime.messages import training as messages
from runtime.parameters.array_blocks import all_finite
from runtime.parameters.declaration import ITEM_BYTES, SYNC, Declaration, Mode, Tensor
from runtime.parameters.embedding_tables import Full, Rows, Table, Tables, Unlike, joined
from runtime.parameters.initializers import Initial, Uniform
from runtime.parameters.messages import FOREVER, Outcome
from runtime.parameters.optimisers import Optimiser
from runtime.parameters.row_blocks import pack, unpack
from runtime.parameters.sharding import even_table, servers_of_rows
from runtime.protocol.client import Client
from runtime.protocol.concurrent_exchange import converse
from runtime.protocol.connection import Message
from runtime.protocol.frames import Op
from runtime.trainer.gradient_staging import Staging
from runtime.trainer.local_sgd import Rounds
from runtime.trainer.memory_window import Window
from runtime.trainer.parameter_store import NO_ROWS, Pushes, Store, arrays_of
from runtime.trainer.server_connection import PATIENCE_SECONDS, Link
from runtime.trainer.tables import SharedTable

Array = NDArray[Any]
Arrays = Mapping[str, Array]

# The handling of a gradient with NaN or infinity: an error, a step that changes nothing, or zeros in place of them.
RAISE, REJECT, ZERO = "raise", "reject", "zero"
NONFINITE = (RAISE, REJECT, ZERO)

log = logging.getLogger("regatta")


class Params(Mapping[str, Array]):
    """A model: arrays by name. References to the arrays stay valid; every pull writes into them.

    ``nonfinite`` is one of ``NONFINITE``. ``guard`` wraps calls that may detect that other processes are lost. ``seed``
    is used for tables without their own. With ``mapped`` the arrays are different from the given ones, and read-only.
    For servers on this host, the arrays are in the servers' memory, and a pull copies nothing.
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
    ) -> None:
        self._arrays = {name: _parameter(name, array) for name, array in _named(arrays).items()}
        self._nonfinite = nonfinite
        self._guard = guard
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
        self._store = Rounds(store) if self._mode.local_steps else store
        values = self._mapped(declaration) if mapped else [array.reshape(-1) for array in self._arrays.values()]
        with self._guard(), _refusals_as_usage_errors():
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
        gradient = _gradient(name, grad, self._arrays[name])
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
            with self._guard(), _refusals_as_usage_errors():
                pushing.result()
        return self.version

    def push(self, grads: Arrays, n: int = 1) -> int:
        """Push gradients only; ``pull`` fetches the result."""
        return self._push(grads, n, pull=False)

    def pull(self) -> int:
        """Fetch the present parameters into the arrays; return the version."""
        self.settle()
        with self._guard(), _refusals_as_usage_errors():
            self._store.pull()
        return self.version

    def _push(self, grads: Arrays, samples: int, pull: bool) -> int:
        gradients, samples, rows = self._prepared(grads, samples)
        with self._guard(), _refusals_as_usage_errors():
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
        self._stand()
        return (gradients, int(samples), rows) if rows is not None and gradients else ([], 0, NO_ROWS)

    def _checked(self, grads: Arrays) -> dict[str, Array]:
        if not isinstance(grads, Mapping):
            raise UsageError(messages.GRADIENTS_NOT_A_DICT(type=type(grads).__name__))
        if unknown := [name for name in grads if name not in self._arrays]:
            raise UsageError(messages.PARAMETER_UNKNOWN(name=f"{unknown[0]!r}", names=", ".join(self._arrays)))
        if missing := [name for name in self._arrays if name not in grads]:
            raise UsageError(messages.GRADIENT_MISSING(name=f"{missing[0]!r}"))
        return {name: _gradient(name, grads[name], array) for name, array in self._arrays.items()}

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
        with self._guard(), _refusals_as_usage_errors():
            return self._store.rows(table, ids)

    def _fetch_all(self, table: Table) -> Rows:
        self.settle()
        with self._guard(), _refusals_as_usage_errors():
            return self._store.trained_rows(table)

    # --- Passes, announced by the loop over the data ------------------------------------------------------------------
    def begin_pass(self, number: int) -> None:
        """Announce pushes of pass ``number``, unless already done. The values are up to date afterwards."""
        self.settle()
        if self._pass != number:
            with self._guard(), _refusals_as_usage_errors():
                self._store.begin_pass(number)
            self._pass = number

    def stand(self, pass_id: int, task: int, batches: int) -> None:
        """Set the position: the current batch is number ``batches`` of a task, counted from 1."""
        self._position = Position(pass_id, task, batches)

    def finish(self, pass_id: int, task: int) -> None:
        """Record that all of a task has been pushed, after waiting for its last push."""
        self.settle()
        self._position = Position(pass_id, NO_TASK, 0)
        self._done.append(task)

    def _stand(self) -> None:
        if self._position is not None:
            self._store.stand(self._position._replace(done=tuple(self._done)))
            self._done.clear()

    def end_pass(self, number: int) -> None:
        """Announce that no push of pass ``number`` follows for now: the others need not wait."""
        self.settle()
        self._stand()
        with self._guard(), _refusals_as_usage_errors():
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


class LocalStore:
    """Everything in this process: the same optimiser as on the servers, and bit for bit the same results."""

    def __init__(self) -> None:
        self._version = 0
        self._optimiser = Optimiser()
        self._values: Sequence[Array] = ()
        self._state: list[tuple[Array, ...]] = []
        self._tables = Tables(0, even_table(1))

    @property
    def version(self) -> int:
        return self._version

    def home(self, declaration: Declaration) -> Sequence[Array]:
        return arrays_of(declaration)

    def start(self, declaration: Declaration, values: Sequence[Array]) -> None:
        self._optimiser = declaration.rule
        self._values = values
        self._state = self._optimiser.states(values)

    def gradient_buffers(self) -> Sequence[Array]:
        return [np.zeros_like(value) for value in self._values]

    def take(self, number: int, gradient: Array) -> bool:
        return all_finite(gradient)

    def stage(self, number: int, gradient: Array) -> bool:
        return self.take(number, gradient)

    def push(self, gradients: Sequence[Array], samples: int, pull: bool, rows: Pushes = NO_ROWS) -> None:
        self._version += 1
        for value, gradient, state in zip(self._values, gradients, self._state, strict=bool(samples)):
            self._optimiser.apply(value, gradient, state, self._version)
        pushed = {self._tables.declare(table).table.name: some for table, some in rows.items()}
        self._tables.promise(pushed, "this trainer")
        self._tables.apply([(pushed, 1.0)], self._version - 1, 1.0)

    def pull(self) -> None:
        """The values are here already."""

    def rows(self, table: Table, ids: Array) -> Array:
        return self._tables.declare(table).values(ids)

    def trained_rows(self, table: Table) -> Rows:
        shelf = self._tables.declare(table)
        return Rows(shelf.ids, shelf.values(shelf.ids)).summed()

    def stand(self, position: Position) -> None:
        """The position is not used."""

    def begin_pass(self, number: int) -> None:
        """No other trainer waits."""

    def end_pass(self, number: int) -> None:
        """No other trainer waits."""


class ServerStore:
    """Parameters on servers; ``clients`` are connected to them in order of index.

    All servers are asked at once, and numbers are transferred in both directions at the same time. ``share`` allows
    memory shared with servers on the same host. ``wire`` is the format of gradients over a socket. A server may be lost
    for up to ``patience`` seconds until another process takes its place.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        share: bool = True,
        wire: str = contract.F32,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._clients = clients
        self._patience = patience
        self._share = share
        self._halved = wire == contract.BF16
        self._versions = [0] * len(clients)  # as last reported
        self._bases = self._versions  # at which the present values were pulled
        self._waits_for_all = True
        self._values: Sequence[Array] = ()
        self._staging: Staging | None = None
        self._window: Window | None = None
        self._links: list[Link] = []
        self._position: Position | None = None

    @property
    def version(self) -> int:
        return self._versions[0]

    def home(self, declaration: Declaration) -> Sequence[Array]:
        """A window, which servers of this host can fill."""
        if not self._share or not Mode.parse(declaration.mode).in_step:
            return arrays_of(declaration)
        self._window = Window(declaration.layout)
        return self._window.arrays

    def start(self, declaration: Declaration, values: Sequence[Array]) -> None:
        """Declare to each server in turn; send initial values to those that request them; pull."""
        mode = Mode.parse(declaration.mode)
        self._waits_for_all = mode.synchronous and not mode.quorum
        self._values = values
        blocks = declaration.blocks(even_table(len(self._clients)))
        for server, client in enumerate(self._clients):
            places = [place for place in blocks if place.server == server]
            self._links.append(Link(client, places, values, self._halved, self._patience, self._window))
            self._links[-1].start(declaration)
        if self._share:
            self._staging = self._shared_memory(declaration)
        self.pull()

    def _shared_memory(self, declaration: Declaration) -> Staging | None:
        """The memory in which gradients are staged; None if no server can share memory."""
        try:
            staging = Staging(declaration.layout)
        except OSError as error:
            why = error.strerror or error
            log.info("No memory can be shared with the parameter servers (%s); numbers go over their sockets.", why)
            return None
        shared = [link.share(staging) for link in self._links]
        if any(shared):
            return staging
        staging.close()
        return None

    def gradient_buffers(self) -> Sequence[Array]:
        return self._staging.arrays if self._staging else [np.zeros_like(value) for value in self._values]

    def take(self, number: int, gradient: Array) -> bool:
        for link in self._links:
            link.unstage(number)
        return self._taken(number, gradient)

    def _taken(self, number: int, gradient: Array) -> bool:
        return self._staging.take(number, gradient) if self._staging else all_finite(gradient)

    def stage(self, number: int, gradient: Array) -> bool:
        if finite := self._taken(number, gradient):
            for link in self._links:
                link.stage(number, gradient)
        return finite

    def push(self, gradients: Sequence[Array], samples: int, pull: bool, rows: Pushes = NO_ROWS) -> None:
        op = Op.PUSH_PULL if pull else Op.PUSH
        self._exchange(
            op,
            {"samples": samples, **self._position_fields()},
            gradients if samples else (),
            rows if samples else NO_ROWS,
        )
        if pull or self._waits_for_all:
            self._bases = self._versions

    def pull(self) -> None:
        self._exchange(Op.PULL)
        self._bases = self._versions

    def begin_pass(self, number: int) -> None:
        self._exchange(Op.BEGIN_PASS, {"pass": number})
        if self._versions != self._bases:
            self.pull()

    def end_pass(self, number: int) -> None:
        self._exchange(Op.END_PASS, {"pass": number, **self._position_fields()})

    def stand(self, position: Position) -> None:
        self._position = position

    def _position_fields(self) -> Mapping[str, Any]:
        """The fields of a request for this trainer's position in the data."""
        return {} if self._position is None else {"at": self._position.to_json()}

    def rows(self, table: Table, ids: Array) -> Array:
        values = np.empty((ids.size, table.dim), "f4")
        where = servers_of_rows(table.name, ids, even_table(len(self._links)))
        parts = {server: np.flatnonzero(where == server) for server in np.unique(where).tolist()}
        wanted = {server: {table: Rows(ids[part], values[:0])} for server, part in parts.items()}
        for server, (found,) in self._ask_rows(wanted, {}).items():
            values[parts[server]] = found.values
        return values

    def trained_rows(self, table: Table) -> Rows:
        nothing: Pushes = {table: Rows(np.empty(0, "i8"), np.empty((0, table.dim), "f4"))}
        found = self._ask_rows(dict.fromkeys(range(len(self._links)), nothing), {"all": True})
        return joined([rows for (rows,) in found.values()]).summed()

    def _ask_rows(self, wanted: Mapping[int, Pushes], body: Mapping[str, Any]) -> Mapping[int, Sequence[Rows]]:
        """Request rows from some servers, all at once; return the answer of each, table by table."""
        asked = {
            server: self._links[server].ask(Op.ROWS_PULL, {**body, **_named_tables(tables)}, rows=pack(tables.values()))
            for server, tables in wanted.items()
        }
        replies = {server: _answer(self._links[server], message) for server, message in asked.items()}
        return {server: unpack(list(wanted[server]), reply.blocks) for server, reply in _whole(replies).items()}

    def _exchange(
        self,
        op: Op,
        body: Mapping[str, Any] | None = None,
        gradients: Sequence[Array] = (),
        rows: Pushes = NO_ROWS,
    ) -> None:
        """Send a request to each server, all at once; read all replies and their versions."""
        asked = [
            link.ask(op, {**(body or {}), **_named_tables(some)}, gradients, base, pack(some.values()))
            for link, base, some in zip(self._links, self._bases, self._spread(rows), strict=True)
        ]
        converse([link.exchange for link in self._links if link.exchange is not None])
        replies = [_answer(link, message) for link, message in zip(self._links, asked, strict=True)]
        self._versions = [reply.head.version for reply in _whole(dict(enumerate(replies))).values()]

    def redirect(self, server: int, address: str, incarnation: int) -> None:
        """Another process is this server now. From any thread."""
        asked: Link | Client = self._links[server] if server < len(self._links) else self._clients[server]
        asked.redirect(address, incarnation)

    def _spread(self, rows: Pushes) -> Sequence[Pushes]:
        """Split rows by server."""
        parts: list[dict[Table, Rows]] = [{} for _ in self._links]
        for table, some in rows.items():
            where = servers_of_rows(table.name, some.ids, even_table(len(self._links)))
            for server in np.unique(where).tolist():
                parts[server][table] = some.part(where == server)
        return parts


def _answer(link: Link, message: Message) -> Message | RegattaError:
    """The reply or the error of a server: the other servers' replies have to be read in any case."""
    try:
        return link.answer(message)
    except (Refused, Lost) as error:
        return error


def _whole(replies: Mapping[int, Message | RegattaError]) -> Mapping[int, Message]:
    """The replies by server. Raises the first error among them."""
    for reply in replies.values():
        if isinstance(reply, RegattaError):
            raise reply
    return {server: reply for server, reply in replies.items() if isinstance(reply, Message)}


def _named_tables(tables: Iterable[Table]) -> Mapping[str, Any]:
    """The fields of a request for the tables whose rows it contains."""
    named = [table.to_json() for table in tables]
    return {"tables": named} if named else {}


# Refusals that are caused by user code.
_OF_USER_CODE = (Outcome.CONFLICT, Outcome.NOT_FINITE, Outcome.NO_MEMORY, "bad_declaration", "too_large")


@contextlib.contextmanager
def _refusals_as_usage_errors() -> Iterator[None]:
    """Convert refusals that are caused by user code to ``UsageError``."""
    try:
        yield
    except Refused as refused:
        if refused.code in _OF_USER_CODE:
            raise UsageError(refused.why) from None
        raise
    except (Full, Unlike) as error:
        raise UsageError(str(error)) from None


def _named(arrays: Arrays) -> Arrays:
    if not isinstance(arrays, Mapping) or not arrays:
        raise UsageError(messages.PARAMETERS_NOT_A_DICT())
    if odd := [name for name in arrays if not isinstance(name, str)]:
        raise UsageError(messages.PARAMETER_NAME_INVALID(name=f"{odd[0]!r}"))
    return arrays


def _parameter(name: str, array: Array) -> Array:
    """The array itself if pulls can write into it, else a copy."""
    if not isinstance(array, np.ndarray) or array.dtype.str not in ITEM_BYTES:
        kind = f"{array.dtype} array" if isinstance(array, np.ndarray) else type(array).__name__
        raise UsageError(messages.PARAMETER_TYPE_INVALID(name=f"{name!r}", type=kind))
    if not all_finite(array):
        raise UsageError(messages.PARAMETER_NOT_FINITE(name=f"{name!r}"))
    return array if array.flags.c_contiguous and array.flags.writeable else np.array(array, order="C")


def _gradient(name: str, gradient: Array, parameter: Array) -> Array:
    """The gradient as a flat array. Raises UsageError if it does not fit the parameter."""
    if not isinstance(gradient, np.ndarray | np.generic):
        raise UsageError(messages.GRADIENT_NOT_AN_ARRAY(name=f"{name!r}", type=type(gradient).__name__))
    if gradient.shape != parameter.shape:
        raise UsageError(messages.GRADIENT_SHAPE_WRONG(name=f"{name!r}", shape=gradient.shape, due=parameter.shape))
    if gradient.dtype != parameter.dtype:
        raise UsageError(
            messages.GRADIENT_TYPE_WRONG(
                name=f"{name!r}", type=gradient.dtype, due=parameter.dtype, wanted=parameter.dtype
            )
        )
    return np.ascontiguousarray(gradient).reshape(-1)


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
