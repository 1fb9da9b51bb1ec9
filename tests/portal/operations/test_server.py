"""The operations port: metrics, health, and bounds."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from portal.common.monitoring.heartbeat import Health
from portal.operations.server import MOST_CONNECTIONS, OperationsServer
from portal.preflight import CannotStart
from tests.waiting import until


class Served:
    """A server whose health a test sets."""

    def __init__(self) -> None:
        self.health = Health(alive=True, age=1.5)
        registry = CollectorRegistry()
        Counter("things", "Things.", registry=registry).inc(3)
        self.server = OperationsServer("127.0.0.1", 0, registry, lambda: self.health)
        self.port = int(self.server.server_address[1])
        self.server.start()

    def get(self, path: str) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", path)
        answer = connection.getresponse()
        found = answer.status, answer.getheader("Content-Type") or "", answer.read()
        connection.close()
        return found


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_it_serves_metrics_in_the_text_format(served: Served) -> None:
    status, content_type, body = served.get("/metrics")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"things_total 3.0\n" in body


def test_a_process_with_a_recent_heartbeat_is_healthy(served: Served) -> None:
    status, _, body = served.get("/healthz")
    assert (status, json.loads(body)) == (200, {"status": "ok", "heartbeat_age_seconds": 1.5})


@pytest.mark.invariant("A worker or sweep that hangs fails its liveness probe.")
def test_a_process_without_a_recent_heartbeat_fails_its_probe(served: Served) -> None:
    served.health = Health(alive=False, age=301.25)
    status, _, body = served.get("/healthz")
    assert (status, json.loads(body)) == (503, {"status": "hangs", "heartbeat_age_seconds": 301.25})


@pytest.mark.parametrize("path", ["/", "/metrics/x", "/admin", "/healthz2"])
def test_it_serves_nothing_else(served: Served, path: str) -> None:
    assert served.get(path)[0] == 404


def test_other_methods_are_refused(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    connection.request("POST", "/metrics", b"x")
    assert connection.getresponse().status == 501


def test_it_holds_at_most_so_many_connections(served: Served) -> None:
    silent = [socket.create_connection(("127.0.0.1", served.port), 20) for _ in range(MOST_CONNECTIONS)]
    until("all are accepted", lambda: served.server._free._value == 0)
    with socket.create_connection(("127.0.0.1", served.port), 20) as surplus:
        assert surplus.recv(1) == b""
    for each in silent:
        each.close()
    until("it answers again", lambda: served.server._free._value == MOST_CONNECTIONS)
    assert served.get("/healthz")[0] == 200


def test_a_port_in_use_is_refused_with_the_setting_to_change(served: Served) -> None:
    with pytest.raises(CannotStart, match="REGATTA_OPERATIONS_PORT"):
        OperationsServer("127.0.0.1", served.port, CollectorRegistry(), lambda: Health(alive=True, age=0))
