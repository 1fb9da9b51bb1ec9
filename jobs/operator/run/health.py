"""HTTP server of ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# A page returns a status and a body.
Page = Callable[[], tuple[int, bytes]]


def check(problem: Callable[[], str]) -> Page:
    """Return a page that answers 200 while ``problem`` returns an empty string, else 503 with the problem."""

    def page() -> tuple[int, bytes]:
        problem_text = problem()
        return (503, f"{problem_text}\n".encode()) if problem_text else (200, b"ok\n")

    return page


def server(host: str, port: int, pages: Mapping[str, Page]) -> ThreadingHTTPServer:
    """Return a server that listens at once and answers after ``serve_forever`` is called. Port 0: any free port.

    Raises:
        OSError: the address is in use, or does not belong to this machine.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            status, body = pages.get(self.path.partition("?")[0], _nothing)()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes arrive every few seconds."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    return Server((host, port), Handler)


def _nothing() -> tuple[int, bytes]:
    return 404, b"/healthz, /readyz and /metrics are here.\n"
