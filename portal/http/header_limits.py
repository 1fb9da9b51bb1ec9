"""HTTP/1.1 by uvicorn with httptools, with a limit on the memory for an incomplete request.

httptools collects the line, the headers and the trailers of a request for as long as the client sends them. Here a
client that sends nothing but those for ``HEAD_LIMIT`` bytes is refused. Until then at most one more read of the socket
is in memory.
"""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from portal.common.monitoring import metrics

# The same limit as uvicorn's parser in Python.
HEAD_LIMIT = 64 * 1024
_TOO_LONG = "The head of the request is too long."


class BoundedHttpProtocol(HttpToolsProtocol):
    """Counts the bytes since the parser last began a request, returned a piece of its body, or ended it."""

    _fruitless = 0
    _bore_fruit = False

    def data_received(self, data: bytes) -> None:
        self._bore_fruit = False
        super().data_received(data)
        self._fruitless = 0 if self._bore_fruit else self._fruitless + len(data)
        if self._fruitless > HEAD_LIMIT and not self.transport.is_closing():
            metrics.REFUSED_REQUESTS.labels("head_too_long").inc()
            self.logger.warning(_TOO_LONG)
            self.send_400_response(_TOO_LONG)

    def on_message_begin(self) -> None:
        self._bore_fruit = True
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._bore_fruit = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._bore_fruit = True
        super().on_message_complete()
