"""The storage of parameters on parameter servers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime import contract
from runtime.checkpoint.data_position import Position
from runtime.errors import Lost, Refused, RegattaError
from runtime.parameters.array_blocks import all_finite
from runtime.parameters.declaration import Declaration, Mode
from runtime.parameters.embedding_tables import Rows, Table, joined
from runtime.parameters.row_blocks import pack, unpack
from runtime.parameters.sharding import even_table, servers_of_rows
from runtime.protocol.client import Client
from runtime.protocol.concurrent_exchange import converse
from runtime.protocol.connection import Message
from runtime.protocol.frames import Op
from runtime.trainer.parameter_store import NO_ROWS, Pushes, arrays_of
from runtime.trainer.servers.gradient_staging import Staging
from runtime.trainer.servers.memory_window import Window
from runtime.trainer.servers.server_connection import PATIENCE_SECONDS, ServerConnection

Array = NDArray[Any]

log = logging.getLogger("regatta")


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
        self._connections: list[ServerConnection] = []
        self._position: Position | None = None
        self.on_sent: Callable[[], object] = lambda: None

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
            self._connections.append(
                ServerConnection(client, places, values, self._halved, self._patience, self._window)
            )
            self._connections[-1].start(declaration)
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
        shared = [connection.share(staging) for connection in self._connections]
        if any(shared):
            return staging
        staging.close()
        return None

    def gradient_buffers(self) -> Sequence[Array]:
        return self._staging.arrays if self._staging else [np.zeros_like(value) for value in self._values]

    def take(self, number: int, gradient: Array) -> bool:
        for connection in self._connections:
            connection.unstage(number)
        return self._taken(number, gradient)

    def _taken(self, number: int, gradient: Array) -> bool:
        return self._staging.take(number, gradient) if self._staging else all_finite(gradient)

    def stage(self, number: int, gradient: Array) -> bool:
        if finite := self._taken(number, gradient):
            for connection in self._connections:
                connection.stage(number, gradient)
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

    def set_position(self, position: Position) -> None:
        self._position = position

    def _position_fields(self) -> Mapping[str, Any]:
        """The fields of a request for this trainer's position in the data."""
        return {} if self._position is None else {"at": self._position.to_json()}

    def rows(self, table: Table, ids: Array) -> Array:
        values = np.empty((ids.size, table.dim), "f4")
        where = servers_of_rows(table.name, ids, even_table(len(self._connections)))
        parts = {server: np.flatnonzero(where == server) for server in np.unique(where).tolist()}
        wanted = {server: {table: Rows(ids[part], values[:0])} for server, part in parts.items()}
        for server, (found,) in self._ask_rows(wanted, {}).items():
            values[parts[server]] = found.values
        return values

    def trained_rows(self, table: Table) -> Rows:
        nothing: Pushes = {table: Rows(np.empty(0, "i8"), np.empty((0, table.dim), "f4"))}
        found = self._ask_rows(dict.fromkeys(range(len(self._connections)), nothing), {"all": True})
        return joined([rows for (rows,) in found.values()]).summed()

    def _ask_rows(self, wanted: Mapping[int, Pushes], body: Mapping[str, Any]) -> Mapping[int, Sequence[Rows]]:
        """Request rows from some servers, all at once; return the answer of each, table by table."""
        asked = {
            server: self._connections[server].send(
                Op.ROWS_PULL, {**body, **_named_tables(tables)}, rows=pack(tables.values())
            )
            for server, tables in wanted.items()
        }
        replies = {server: _reply(self._connections[server], message) for server, message in asked.items()}
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
            connection.send(op, {**(body or {}), **_named_tables(some)}, gradients, base, pack(some.values()))
            for connection, base, some in zip(self._connections, self._bases, self._spread(rows), strict=True)
        ]
        exchanges = [connection.exchange for connection in self._connections if connection.exchange is not None]
        converse(exchanges, self.on_sent)
        replies = [_reply(connection, message) for connection, message in zip(self._connections, asked, strict=True)]
        self._versions = [reply.head.version for reply in _whole(dict(enumerate(replies))).values()]

    def redirect(self, server: int, address: str, incarnation: int) -> None:
        """Another process is this server now. From any thread."""
        target: ServerConnection | Client = (
            self._connections[server] if server < len(self._connections) else self._clients[server]
        )
        target.redirect(address, incarnation)

    def _spread(self, rows: Pushes) -> Sequence[Pushes]:
        """Split rows by server."""
        parts: list[dict[Table, Rows]] = [{} for _ in self._connections]
        for table, some in rows.items():
            where = servers_of_rows(table.name, some.ids, even_table(len(self._connections)))
            for server in np.unique(where).tolist():
                parts[server][table] = some.part(where == server)
        return parts


def _reply(connection: ServerConnection, message: Message) -> Message | RegattaError:
    """The reply or the error of a server: the other servers' replies have to be read in any case."""
    try:
        return connection.reply(message)
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
