"""HTTP server of the gateway: routes to the desk's functions, and numbers and records in forms that programs read."""

from __future__ import annotations

import contextlib
import hmac
import json
import re
import secrets
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from runtime.errors import Leaving, Lost, RegattaError, UsageError
from runtime.gateway import encodings
from runtime.gateway.session import DTYPES, Desk, Over, Stale
from runtime.protocol import shortage
from runtime.protocol.proof import PAUSE_SECONDS, PROOF_SECONDS, UNPROVEN_LIMIT, Refusals
from runtime.protocol.shortage import Shortage
from runtime.trainer.tasks.task_client import JobFailed

Array = NDArray[Any]

BODY_LIMIT = 4 * 1024**3
WAIT_SECONDS = 1  # between two requests for a task
LEAVING_SECONDS = 30  # after this time a program that is still running may find another gateway
CSV = "csv"

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Reply:
    status: HTTPStatus
    body: bytes = b""
    kind: str = "application/octet-stream"
    headers: Mapping[str, str] = field(default_factory=dict)


class Request(NamedTuple):
    names: Mapping[str, str]  # parts of the path
    query: Mapping[str, str]
    body: bytes

    def json(self) -> Mapping[str, Any]:
        """Return the body as a JSON object. Raises UsageError."""
        try:
            content = json.loads(self.body or b"{}")
        except ValueError as error:
            raise UsageError(f"The body is no JSON: {error}.") from None
        if not isinstance(content, dict):
            raise UsageError("The body is a JSON object.")
        return content


class Service:
    """Serves a desk on 127.0.0.1, below a secret path that only the program gets.

    ``leaving``: why this process should end.
    """

    def __init__(self, desk: Desk, leaving: Callable[[], str]) -> None:
        self._desk = desk
        self._leaving = leaving
        self._secret = secrets.token_urlsafe(32)
        self.refusals = Refusals()
        self._server = _Listener(("127.0.0.1", 0), _handler(self))
        self._routes: list[tuple[str, re.Pattern[str], Callable[[Request], Reply]]] = [
            ("GET", re.compile(r"/v1/task"), self._task),
            ("POST", re.compile(r"/v1/task/(?P<task>[0-9]+)/(?P<how>done|fail|release)"), self._report_task),
            ("GET", re.compile(r"/v1/records/(?P<task>[0-9]+)"), self._records),
            ("POST", re.compile(r"/v1/params"), self._declare),
            ("GET", re.compile(r"/v1/params/(?P<name>.+)"), self._values),
            ("POST", re.compile(r"/v1/params/(?P<name>.+)"), self._push),
            ("POST", re.compile(r"/v1/tables"), self._declare_table),
            ("POST", re.compile(r"/v1/tables/(?P<name>.+)/pull"), self._pull_rows),
            ("POST", re.compile(r"/v1/tables/(?P<name>.+)/push"), self._push_rows),
            ("POST", re.compile(r"/v1/report"), self._report),
            ("POST", re.compile(r"/v1/save"), self._save),
        ]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{self._secret}"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="gateway", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def admits(self, target: str) -> bool:
        """Return whether the path of a request begins with the secret."""
        given = urlsplit(target).path.removeprefix("/").partition("/")[0]
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._secret.encode())

    def proven(self, connection: socket.socket) -> None:
        """Record that a peer has sent the secret on this connection, which it may keep open from now on."""
        self._server.proven(connection)

    def answer(self, method: str, target: str, body: bytes) -> Reply:
        """Return the reply to a request. Every failure becomes a typed reply."""
        if not self.admits(target):
            return _problem(HTTPStatus.NOT_FOUND, "unknown", "The address is in REGATTA_GATEWAY, whole.")
        if self._leaving():
            return _unavailable(self._leaving())
        address = urlsplit(target)
        path = address.path.removeprefix(f"/{self._secret}")
        for allowed, pattern, function in self._routes:
            if allowed == method and (match := pattern.fullmatch(path)):
                names = {name: unquote(part) for name, part in match.groupdict().items()}
                return _guarded(function, Request(names, dict(parse_qsl(address.query)), body))
        return _problem(HTTPStatus.NOT_FOUND, "unknown", f"There is no {method} {path}; see runtime/gateway.")

    # --- Routes ------------------------------------------------------------------------------------------------------
    def _task(self, request: Request) -> Reply:
        task = self._desk.next_task()
        if task is None:
            return Reply(HTTPStatus.NO_CONTENT, headers={"Retry-After": str(WAIT_SECONDS)})
        chunks = [chunk._asdict() for chunk in task.chunks]
        count = sum(chunk.records for chunk in task.chunks)
        content = {"task": task.task_id, "pass": task.pass_id, "epoch": task.epoch, "records": count, "chunks": chunks}
        return _json(content)

    def _report_task(self, request: Request) -> Reply:
        self._desk.report_task(int(request.names["task"]), request.names["how"], request.json())
        return _json({})

    def _records(self, request: Request) -> Reply:
        found = self._desk.records(int(request.names["task"]))
        form = request.query.get("format", "raw")
        if form == CSV:
            return _csv([encodings.line(record) for record in found])
        if form != "raw":
            raise UsageError(f"Records come as raw or csv, not {form!r}.")
        coded = map(encodings.raw, found)
        return Reply(HTTPStatus.OK, b"".join(part for data in coded for part in (_LENGTH.pack(len(data)), data)))

    def _declare(self, request: Request) -> Reply:
        return _json({"version": self._desk.declare(request.json())})

    def _values(self, request: Request) -> Reply:
        return _numbers(self._desk.values(request.names["name"]), request.query)

    def _push(self, request: Request) -> Reply:
        name, query = request.names["name"], request.query
        gradient = _gradient(request.body, query)
        if query.get("op", "push_pull") == "push":
            self._desk.push(name, gradient)
            return _json({})
        samples = query.get("n", "1")
        if not samples.isdigit():
            raise UsageError(f"n is the number of samples behind the gradients, not {samples!r}.")
        return _numbers(self._desk.push_pull(name, gradient, int(samples)), query)

    def _declare_table(self, request: Request) -> Reply:
        self._desk.declare_table(request.json())
        return _json({})

    def _pull_rows(self, request: Request) -> Reply:
        text = _is_text(request.query)
        rows = self._desk.rows(request.names["name"], _ids(request.body, text))
        return _csv(_line_of(row) for row in rows) if text else Reply(HTTPStatus.OK, rows.astype("<f4").tobytes())

    def _push_rows(self, request: Request) -> Reply:
        name = request.names["name"]
        read = _rows_of_text if _is_text(request.query) else _rows_of_bytes
        self._desk.push_rows(name, *read(request.body, self._desk.dim_of(name)))
        return _json({})

    def _report(self, request: Request) -> Reply:
        self._desk.report(request.json())
        return _json({})

    def _save(self, request: Request) -> Reply:
        return _json({"saved": self._desk.save(request.query.get("path", "model.npz"), request.body)})


# --- Replies ---------------------------------------------------------------------------------------------------------
def _guarded(function: Callable[[Request], Reply], request: Request) -> Reply:
    try:
        return function(request)
    except Over as over:
        return _problem(HTTPStatus.GONE, "done", str(over))
    except Stale as stale:
        return _problem(HTTPStatus.CONFLICT, "stale", str(stale))
    except JobFailed as failed:
        return _problem(HTTPStatus.CONFLICT, "job_failed", str(failed))
    except (Lost, Leaving, SystemExit) as gone:
        return _unavailable(str(gone))
    except (RegattaError, OSError) as error:
        return _problem(HTTPStatus.UNPROCESSABLE_ENTITY, "refused", str(error))
    except Exception as error:  # noqa: BLE001  without an answer the program could not report the error
        traceback.print_exc()
        why = f"The gateway failed: {type(error).__name__}: {error}. The log has the traceback."
        return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", why)


def _unavailable(why: str) -> Reply:
    reply = _problem(HTTPStatus.SERVICE_UNAVAILABLE, "leaving", f"This trainer ends: {why}. The task is given back.")
    return Reply(reply.status, reply.body, reply.kind, {"Retry-After": str(LEAVING_SECONDS)})


def _problem(status: HTTPStatus, code: str, why: str) -> Reply:
    return Reply(status, _line({"code": code, "why": why}), "application/json")


def _json(body: Mapping[str, Any]) -> Reply:
    return Reply(HTTPStatus.OK, _line(body), "application/json")


def _line(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode() + b"\n"


def _csv(lines: Iterable[str]) -> Reply:
    return Reply(HTTPStatus.OK, "".join(f"{line}\n" for line in lines).encode(), "text/csv")


def _numbers(values: Array, query: Mapping[str, str]) -> Reply:
    form = query.get("dtype", values.dtype.str[1:])
    if form == CSV:
        return _csv(map(repr, values.ravel().tolist()))
    return Reply(HTTPStatus.OK, values.astype(_dtype(form)).tobytes())


def _gradient(body: bytes, query: Mapping[str, str]) -> Array:
    form = query.get("dtype", "f4")
    try:
        if form == CSV:
            return np.array(body.decode().replace(",", " ").split(), "f8")
        return np.frombuffer(body, _dtype(form))
    except ValueError as error:
        raise UsageError(f"The gradient cannot be read as {form}: {error}.") from None


def _is_text(query: Mapping[str, str]) -> bool:
    form = query.get("dtype", "f4")
    if form not in ("f4", CSV):
        raise UsageError(f"Rows of tables come as f4 or {CSV}, not {form!r}.")
    return form == CSV


def _line_of(row: Array) -> str:
    return ",".join(map(repr, row.tolist()))


def _ids(body: bytes, text: bool) -> Array:
    try:
        return np.array(body.decode().replace(",", " ").split(), "i8") if text else np.frombuffer(body, "<i8")
    except ValueError as error:
        raise UsageError(f"The ids cannot be read: {error}. They are whole numbers.") from None


def _rows_of_text(body: bytes, dim: int) -> tuple[Array, Array]:
    """Return ids (n,) and gradients (n, dim) from a line for each."""
    lines = [line.split(",") for line in body.decode(errors="replace").splitlines() if line]
    if odd := next((number for number, line in enumerate(lines, 1) if len(line) != dim + 1), None):
        raise UsageError(f"Line {odd} has {len(lines[odd - 1])} numbers; an id and {dim} of a gradient are due.")
    try:
        values = np.array([line[1:] for line in lines], "f4").reshape(-1, dim)
        return np.array([line[0] for line in lines], "i8"), values
    except ValueError as error:
        raise UsageError(f"The rows cannot be read: {error}.") from None


def _rows_of_bytes(body: bytes, dim: int) -> tuple[Array, Array]:
    """Return the same from n ids and then n rows."""
    count, rest = divmod(len(body), 8 + 4 * dim)
    if rest:
        raise UsageError(f"{len(body)} bytes are no ids (8 bytes each) with rows of {dim} numbers (4 bytes each).")
    return np.frombuffer(body, "<i8", count), np.frombuffer(body, "<f4", offset=8 * count).reshape(count, dim)


def _dtype(form: str) -> str:
    if form not in DTYPES:
        raise UsageError(f"Numbers come as {', '.join(DTYPES)} or {CSV}, not {form!r}.")
    return DTYPES[form]


class _Listener(ThreadingHTTPServer):
    """Accepts connections, also after a temporary shortage of descriptors or threads."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._shortage = Shortage()
        self._lock = threading.Lock()
        self._unproven: dict[socket.socket, None] = {}  # oldest first

    def get_request(self) -> tuple[Any, Any]:
        try:
            return super().get_request()
        except ConnectionError:
            raise
        except OSError as error:
            self._run_short(error)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._unproven[request] = None
            oldest = next(iter(self._unproven)) if len(self._unproven) > UNPROVEN_LIMIT else None
            if oldest is not None:
                del self._unproven[oldest]
                with contextlib.suppress(OSError):  # its peer has closed it
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.proven(request)
        super().shutdown_request(request)

    def proven(self, connection: socket.socket) -> None:
        """Remove the connection from those without the secret."""
        with self._lock:
            self._unproven.pop(connection, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if isinstance(error, RuntimeError | MemoryError):  # no thread could be started
            self._run_short(error)
        elif not isinstance(error, ConnectionError | TimeoutError):  # otherwise the program has closed the connection
            super().handle_error(request, client_address)

    def _run_short(self, error: Exception) -> None:
        self._shortage.add(error)
        time.sleep(shortage.PAUSE_SECONDS)


def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # For the first request. Afterwards the program may keep its connection open.
        timeout = PROOF_SECONDS

        def do_GET(self) -> None:
            if self._is_admitted():
                self._reply(service.answer("GET", self.path, b""))

        def do_POST(self) -> None:
            if not self._is_admitted():
                return
            length = self.headers.get("Content-Length") or "0"
            if not (length.isascii() and length.isdigit()):
                self.close_connection = True
                why = f"Content-Length is a number of bytes, not {length[:40]!r}."
                self._reply(_problem(HTTPStatus.BAD_REQUEST, "refused", why))
            elif int(length) > BODY_LIMIT:
                self.close_connection = True
                why = f"A body has at most {BODY_LIMIT:,} bytes."
                self._reply(_problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", why))
            else:
                self._reply(service.answer("POST", self.path, self.rfile.read(int(length))))

        def _is_admitted(self) -> bool:
            """Check the secret.

            Without it, the body is not read, the answer is delayed and the connection is closed.
            """
            if service.admits(self.path):
                self.connection.settimeout(None)
                service.proven(self.connection)
                return True
            service.refusals.add(str(self.client_address[0]))
            time.sleep(PAUSE_SECONDS)
            self.close_connection = True
            self._reply(service.answer(self.command, self.path, b""))
            return False

        def _reply(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.status != HTTPStatus.NO_CONTENT:
                self.send_header("Content-Type", reply.kind)
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *arguments: Any) -> None:
            """Log nothing: the program's own output is the log."""

    return Handler
