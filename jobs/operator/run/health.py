"""``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# A page gives a status and a body.
Page = Callable[[], tuple[int, bytes]]


def check(problem: Callable[[], str]) -> Page:
    """200 while ``problem`` has nothing to say."""

    def page() -> tuple[int, bytes]:
        problem_text = problem()
        return (503, f"{problem_text}\n".encode()) if problem_text else (200, b"ok\n")

    return page


def server(host: str, port: int, pages: Mapping[str, Page]) -> ThreadingHTTPServer:
    """Listens at once; answers from ``serve_forever`` on. Port 0: any free one.

    Raises:
        OSError: the address is taken, or not of this machine.
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
            """Probes come every few seconds."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    return Server((host, port), Handler)


def _nothing() -> tuple[int, bytes]:
    return 404, b"/healthz, /readyz and /metrics are here.\n"
