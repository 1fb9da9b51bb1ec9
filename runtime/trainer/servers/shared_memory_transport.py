"""Gradients and values in memory that a trainer shares with a server of its host."""

from __future__ import annotations

import contextlib

from runtime.errors import Lost, Refused
from runtime.protocol.client import Client
from runtime.protocol.connection import Message
from runtime.protocol.frames import Op
from runtime.protocol.shared_memory import Handover
from runtime.trainer.servers.gradient_staging import Staging
from runtime.trainer.servers.held_values import HeldValues

# How often parameters are copied from the server's memory before it is asked to send them.
COPIES = 4


class SharedMemoryTransport:
    """The numbers of one server's requests, none of which pass through the socket.

    The server reads the gradients where they are staged, and ``values`` are read from its memory. They are copied, or
    shown in a window. When the connection breaks the server drops the memory: ``is_open`` has to be renewed by
    ``open``, and a request that it refuses with ``NOT_SHARED`` closes the transport.
    """

    def __init__(self, client: Client, values: HeldValues) -> None:
        self._client = client
        self._values = values
        self._staging: Staging | None = None  # the gradients for a server that shares memory

    @property
    def is_open(self) -> bool:
        """Whether memory is shared at present."""
        return self._values.mapped.is_open

    def share(self, staging: Staging) -> bool:
        """Share memory with the server, if possible; return whether every gradient must be staged from now on."""
        self._staging = staging
        self.open()
        return self._staging is not None

    def open(self) -> None:
        """Have the server map the gradients, and receive the descriptor of its parameters."""
        self._values.mapped.close()
        if self._staging is None:
            return
        with contextlib.suppress(OSError, ValueError), contextlib.closing(Handover(self._client.secret)) as handover:
            body = {**self._staging.where, "handover": handover.name, "journal": self._values.mapped.wants_journal}
            try:
                answer = self._client.call(Op.SHARE, body)
            except (Lost, Refused):
                return  # the next request raises the error
            if answer["shared"]:
                self._values.mapped.adopt(handover.collect(), bool(answer.get("journal")))
                return
        self._staging = None

    def close(self) -> None:
        """Keep the present values, and share no memory until ``open``."""
        self._values.keep()
        self._values.mapped.close()

    def read_values(self, reply: Message, waited_for: bool) -> Message:
        """Copy the parameters that a reply announced; return the reply with their version.

        In synchronous training the next version waits for this trainer (``waited_for``), and the first copy is
        consistent. If others push meanwhile it may not be; in the end the server sends a copy that it makes between two
        updates.
        """
        for _ in range(COPIES):
            if self._values.read(reply.head.version, waited_for):
                return reply
            reply = self._client.request(Op.PULL, {"shared": True})
        return self._client.request(Op.PULL, allocate=self._values.allocate)
