"""Several requests at once, each on a connection of its own: requests are sent while answers arrive.

Both directions of every connection progress independently. So no peer waits for numbers that another one delays, and a
peer may answer before it has received the whole request.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Sequence

from runtime.errors import RegattaError
from runtime.protocol.connection import (
    LOOK_SECONDS,
    Allocate,
    Arrived,
    Began,
    Closed,
    Connection,
    Message,
    Reading,
    views_of,
    write_batches,
)
from runtime.protocol.frames import Buffer

# Returns whether a message is the reply; others may precede it. Raises for a refusal or an invalid message.
IsReply = Callable[[Message], bool]


class Exchange:
    """One request and its answer. ``patience`` is a number of seconds without a byte in either direction."""

    def __init__(
        self,
        connection: Connection,
        message: Message,
        is_reply: IsReply,
        patience: float,
        allocate: Allocate,
        began: Began = lambda head, body: None,
        arrived: Arrived = lambda header: None,
    ) -> None:
        self.connection = connection
        self._is_reply = is_reply
        self._patience = patience
        self._write_batches: Iterator[list[Buffer]] = write_batches(message)
        self._sending = views_of(next(self._write_batches))
        self.sent = False
        self.left = False  # set when ``converse`` is done with it: another thread may use the connection
        self._begin: Callable[[], Reading] = lambda: connection.reading(allocate, began, arrived)
        self._reading = self._begin()
        self._memory = next(self._reading)
        self._begun = self._moved = time.monotonic()
        self._reply: Message | None = None
        self._error: RegattaError | None = None

    @property
    def over(self) -> bool:
        return self._reply is not None or self._error is not None

    @property
    def seconds(self) -> float:
        """The seconds from its beginning to the last byte."""
        return self._moved - self._begun

    def has_brought(self, reply: Message) -> bool:
        """Whether this is the reply that it received."""
        return reply is self._reply

    def result(self) -> Message:
        """Return the reply. Raises Closed, DeadlinePassed, WireError, Refused or Leaving if there is none."""
        if self._reply is not None:
            return self._reply
        raise self._error or Closed("The conversation has not come to its end.")

    def advance(self, events: int) -> None:
        """Continue in the directions that ``poll`` returned; no ``events``: no byte has moved."""
        try:
            if not events:
                self.connection.look(self._moved + self._patience)
                return
            self._moved = time.monotonic()
            if events & ~select.POLLOUT:
                self._receive()
            if events & select.POLLOUT and not self.sent:
                self._send()
        except RegattaError as error:
            self._error = error

    def _send(self) -> None:
        self._sending = self.connection.send_some(self._sending)
        while not self._sending and not self.sent:
            parts = next(self._write_batches, None)
            self.sent = parts is None
            self._sending = views_of(parts or ())

    def _receive(self) -> None:
        got = self.connection.fill_some(self._memory)
        self._memory = self._memory[got:]
        while not self._memory.nbytes and self._reply is None:
            try:
                self._memory = next(self._reading)
            except StopIteration as end:
                self._take(end.value)

    def _take(self, message: Message) -> None:
        if self._is_reply(message):
            self._reply = message
        else:
            self._reading = self._begin()
            self._memory = next(self._reading)


def converse(exchanges: Sequence[Exchange], on_sent: Callable[[], object] = lambda: None) -> None:
    """Continue until each exchange has its reply or has failed; ``result`` then returns or raises it.

    ``on_sent`` is called once, when nothing is left to be sent.
    """
    poll = select.poll()
    going = {exchange.connection.fileno(): exchange for exchange in exchanges}
    unsent = True
    for number in going:
        poll.register(number, select.POLLIN | select.POLLOUT)
    while going:
        ready = dict(poll.poll(LOOK_SECONDS * 1000))
        for number, exchange in list(going.items()):
            sending = not exchange.sent
            exchange.advance(ready.get(number, 0))
            if exchange.over:
                poll.unregister(number)
                del going[number]
                exchange.left = True
            elif sending and exchange.sent:
                poll.modify(number, select.POLLIN)
        if unsent and all(exchange.sent for exchange in going.values()):
            unsent = False
            on_sent()
    if unsent:
        on_sent()
