"""Wait replies: signs of life to the peers of a server that wait long for an answer."""

from __future__ import annotations

import logging
import threading
import time

from runtime.errors import WireError
from runtime.protocol import frames
from runtime.protocol.connection import Connection, Message
from runtime.protocol.frames import Header
from runtime.protocol.replies import reply_head

log = logging.getLogger("wire")

# The interval of the wait replies to a waiting peer.
WAITING_SECONDS = 3.0


class WaitReplies:
    """Sends wait replies to every peer that has waited for ``seconds`` or longer, on a thread of its own. Thread-safe.

    A peer waits from ``begin`` to ``end``. A wait reply may arrive after the answer, and does no harm then. The thread
    runs from ``start`` until ``closed`` is set.
    """

    def __init__(self, seconds: float, closed: threading.Event) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._requests: dict[Connection, tuple[Header, float]] = {}  # those being answered, and since when
        self._closed = closed
        self._thread = threading.Thread(target=self._run, name="server-waiting", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin(self, connection: Connection, head: Header) -> None:
        """A peer waits for the answer to a request."""
        with self._lock:
            self._requests[connection] = (head, time.monotonic())

    def end(self, connection: Connection) -> None:
        """The answer is made."""
        with self._lock:
            del self._requests[connection]

    def _run(self) -> None:
        while not self._closed.wait(self._seconds / 2):
            long_ago = time.monotonic() - self._seconds
            with self._lock:
                requests = [(peer, head) for peer, (head, since) in self._requests.items() if since <= long_ago]
            for connection, head in requests:
                try:
                    connection.send_aside(Message(reply_head(head)._replace(op=frames.Op.WAIT)))
                except WireError:
                    pass  # the connection's own thread detects that too
                except Exception as error:  # noqa: BLE001  without this thread every long answer would count as lost
                    log.warning("A peer that waits could not be sent a sign of life: %r", error)
