"""The gateway answers only the program that was given its address."""

from __future__ import annotations

import errno
import hmac
import http.client
import socket
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from runtime.gateway import http_server as gateway
from runtime.gateway.http_server import Service
from runtime.gateway.session import Desk


class RecordingDesk:
    """Desk that counts its calls."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def report(self, values: Any) -> None:
        self.reports.append(values)


@pytest.fixture
def desk() -> RecordingDesk:
    return RecordingDesk()


@pytest.fixture
def running(desk: RecordingDesk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(gateway, "PAUSE_SECONDS", 0.01)
    service = Service(cast(Desk, desk), lambda: "")
    service.start()
    yield service
    service.close()


def request(running: Service, path: str, body: bytes = b"{}", **headers: str) -> int:
    link = http.client.HTTPConnection("127.0.0.1", urlsplit(running.address).port or 0, timeout=60)
    link.request("POST", path, body, headers)
    status = link.getresponse().status
    link.close()
    return status


def test_the_program_is_answered(running: Service, desk: RecordingDesk) -> None:
    assert request(running, urlsplit(running.address).path + "/v1/report", b'{"cost": 1}') == 200
    assert (desk.reports, running.refusals.count) == ([{"cost": 1}], 0)


@pytest.mark.parametrize("path", ["/v1/report", "/wrong/v1/report", "/", "//v1/report", "/\udc80/v1/report"])
def test_a_path_without_the_secret_reaches_nobody_and_is_counted(
    running: Service, desk: RecordingDesk, path: str
) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(running.address).port or 0), timeout=60) as link:
        link.sendall(b"POST " + path.encode("utf-8", "surrogateescape") + b" HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        answer = link.recv(1000)
    assert answer.startswith(b"HTTP/1.1 404")
    assert (desk.reports, running.refusals.count) == ([], 1)


def test_the_body_of_an_unauthorised_request_is_not_read(running: Service) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(running.address).port or 0), timeout=60) as link:
        link.sendall(b"POST /wrong/v1/save HTTP/1.1\r\nContent-Length: 4000000000\r\n\r\n")
        assert link.recv(1000).startswith(b"HTTP/1.1 404")


def test_a_connection_has_one_try(running: Service, desk: RecordingDesk) -> None:
    right = urlsplit(running.address).path.encode() + b"/v1/report"
    with socket.create_connection(("127.0.0.1", urlsplit(running.address).port or 0), timeout=60) as link:
        for path in (b"/wrong/v1/report", right):
            link.sendall(b"POST " + path + b" HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        while link.recv(1000):
            pass
    assert desk.reports == []


def test_the_secret_is_compared_in_constant_time(running: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: False)
    assert request(running, urlsplit(running.address).path + "/v1/report") == 404


def connect(running: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(running.address).port or 0), timeout=60)


def test_of_too_many_connections_without_the_secret_the_oldest_is_closed(
    running: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "UNPROVEN_LIMIT", 2)
    with connect(running) as oldest, connect(running) as second, connect(running):
        assert oldest.recv(100) == b""
        target = urlsplit(running.address).path + "/v1/report"
        second.sendall(f"POST {target} HTTP/1.1\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        assert second.recv(100).startswith(b"HTTP/1.1 200")


def test_the_programs_connection_stays_when_others_connect(running: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "UNPROVEN_LIMIT", 1)
    program = http.client.HTTPConnection("127.0.0.1", urlsplit(running.address).port or 0, timeout=60)
    for _ in range(2):
        program.request("POST", urlsplit(running.address).path + "/v1/report", b"{}")
        answer = program.getresponse()
        answer.read()
        assert answer.status == 200
        with connect(running) as first, connect(running):
            assert first.recv(100) == b""
    program.close()


def test_an_error_that_nobody_expected_is_answered_and_logged(
    running: Service, desk: RecordingDesk, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(values: Any) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(desk, "report", fails)
    assert request(running, urlsplit(running.address).path + "/v1/report") == 500
    assert "ZeroDivisionError: by nothing" in capfd.readouterr().err


@pytest.mark.parametrize("length", ["-1", "many", "1e3"])
def test_a_length_that_is_none_is_refused(running: Service, length: str) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(running.address).port or 0), timeout=60) as link:
        target = urlsplit(running.address).path + "/v1/report"
        link.sendall(f"POST {target} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
        assert link.recv(1000).startswith(b"HTTP/1.1 400")


def test_a_gateway_goes_on_after_descriptors_were_used_up(running: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.protocol.shortage.PAUSE_SECONDS", 0.01)
    accept, failures = running._server.socket.accept, [OSError(errno.EMFILE, "too many")] * 3

    class RunsShort:
        def accept(self) -> Any:
            if failures:
                raise failures.pop()
            return accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(listener, name)

    listener = running._server.socket
    monkeypatch.setattr(running._server, "socket", RunsShort())
    assert request(running, urlsplit(running.address).path + "/v1/report") == 200
