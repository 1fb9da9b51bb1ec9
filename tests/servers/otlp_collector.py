"""A collector of OpenTelemetry traces: an HTTP server that decodes what exporters send, or one that never answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Received:
    """A span as the collector got it. Ids are hexadecimal; ``parent`` is empty for the first span of a trace."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    attributes: Mapping[str, str | int]
    error: str
    is_server: bool


class Collector:
    """Accepts spans on a free port; answers ``status``."""

    def __init__(self) -> None:
        self.status = 200
        self.spans: list[Received] = []
        self.headers: list[Mapping[str, str]] = []
        self.paths: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def open(self) -> Iterator[Collector]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def of_job(self, job_id: str) -> list[Received]:
        """Return the spans of the traces that name the job."""
        traces = {span.trace for span in self.spans if span.attributes.get("regatta.job.id") == job_id}
        return [span for span in self.spans if span.trace in traces]


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            collector.paths.add(self.path)
            if collector.status == 200:
                collector.spans.extend(_spans(ExportTraceServiceRequest.FromString(body)))
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    return Handler


def _spans(request: ExportTraceServiceRequest) -> Iterator[Received]:
    for resource in request.resource_spans:
        service = _attributes(resource.resource.attributes)["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Received(
                    service=str(service),
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    attributes=_attributes(span.attributes),
                    error=span.status.message if span.status.code == 2 else "",
                    is_server=span.kind == 2,
                )


def _attributes(pairs: Any) -> dict[str, str | int]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
