"""HTTP server of the operations port, on threads of its own: it answers while the process's own loop hangs.

It has no access control: a network policy or a loopback address has to admit only probes and Prometheus. No response
names a person, a job or a namespace.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from portal.common.monitoring import metrics
from portal.common.monitoring.heartbeat import Health
from portal.preflight import CannotStart

# Connections that are answered at once; more are closed without an answer.
MOST_CONNECTIONS = 8
# Seconds in which a client has to send its request and take the response.
_CLIENT_SECONDS = 5.0

Check = Callable[[], Health]
Answer = tuple[HTTPStatus, str, bytes]


class OperationsServer(ThreadingHTTPServer):
    """Serves the metrics of ``registry`` and the health of ``check``; ``start`` returns at once."""

    daemon_threads = True

    def __init__(self, host: str, port: int, registry: metrics.Registry, check: Check) -> None:
        self._registry, self._check = registry, check
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise CannotStart(
                f"The operations port {port} of {host} cannot be used: {error.strerror}. Set REGATTA_OPERATIONS_PORT "
                "to a free port, or remove it."
            ) from None

    def start(self) -> None:
        """Answer on a thread until the process ends."""
        threading.Thread(target=self.serve_forever, name="operations", daemon=True).start()

    def server_bind(self) -> None:
        # Without the look-up of the host's name in ``HTTPServer.server_bind``, which can take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def answer(self, path: str) -> Answer:
        """Return status, content type and body of a path."""
        page = _PAGES.get(path.partition("?")[0])
        return page(self) if page else (HTTPStatus.NOT_FOUND, "text/plain", b"Pages: /metrics, /healthz.\n")

    def metrics_page(self) -> Answer:
        return HTTPStatus.OK, metrics.CONTENT_TYPE, metrics.text(self._registry)

    def health_page(self) -> Answer:
        """503 when the heartbeat is too old: Kubernetes then restarts the process."""
        found = self._check()
        status = HTTPStatus.OK if found.alive else HTTPStatus.SERVICE_UNAVAILABLE
        body = {"status": "ok" if found.alive else "hangs", "heartbeat_age_seconds": round(found.age, 3)}
        return status, "application/json", json.dumps(body).encode()

    # --- Bounds ------------------------------------------------------------------------------------------------------
    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnects is no error of the portal; other errors close the connection."""


_PAGES: dict[str, Callable[[OperationsServer], Answer]] = {
    "/metrics": OperationsServer.metrics_page,
    "/healthz": OperationsServer.health_page,
}


class _Handler(BaseHTTPRequestHandler):
    """One request a connection."""

    timeout = _CLIENT_SECONDS
    server: OperationsServer
    server_version, sys_version = "regatta", ""

    def do_GET(self) -> None:
        status, content_type, body = self.server.answer(self.path)
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a probe and a scrape arrive every few seconds."""
