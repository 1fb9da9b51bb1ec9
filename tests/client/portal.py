"""Fake portal that answers from a table, for tests of the client alone."""

from __future__ import annotations

import json
from typing import Any

import httpx

from regatta import Client

Answer = httpx.Response | BaseException
SERVER = "http://portal.test"


class PaperPortal(httpx.BaseTransport):
    """Returns the responses of a path in order, the last of them repeatedly, and records the requests."""

    def __init__(self, answers: dict[str, list[Answer]]) -> None:
        self.answers = {path: list(given) for path, given in answers.items()}
        self.asked: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.asked.append(request)
        given = self.answers.get(f"{request.method} {request.url.path}")
        if not given:
            return problem(404, "not_found", f"Nothing at {request.url.path}.")
        answer = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(answer, BaseException):
            raise answer
        # A response can be read only once; a repeated one is created again.
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.asked if request.content]


class Clock:
    """Clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def client(answers: dict[str, list[Answer]]) -> tuple[Client, PaperPortal, Clock]:
    """Return a client whose requests are answered from a table, the portal that records them, and its clock."""
    clock, portal = Clock(), PaperPortal(answers)
    return Client(SERVER, "rgt_x", transport=portal, sleep=clock.sleep, clock=clock), portal, clock


def ok(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body)


def problem(status: int, code: str, detail: str, **extra: Any) -> httpx.Response:
    body = {"code": code, "detail": detail, "status": status, **extra}
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json"})


def job(state: str = "RUNNING", **changed: Any) -> dict[str, Any]:
    return {
        "id": "j1",
        "name": "digits",
        "namespace": "ada",
        "state": state,
        "reason": "",
        "why": "",
        "attempt": 1,
        "created": "2026-01-01T00:00:00Z",
        "started": None,
        "finished": None,
        "replicas": [{"name": "trainer-0", "role": "trainer", "index": 0, "state": "registered", "why": ""}],
        **changed,
    }


def lines(*seqs: int, last: int = 0, more: bool = False) -> dict[str, Any]:
    found = [{"seq": seq, "time": 0, "replica": "trainer-0", "stream": "stdout", "text": f"line {seq}"} for seq in seqs]
    return {"lines": found, "first": seqs[0] if seqs else 0, "last": seqs[-1] if seqs else last, "more": more}
