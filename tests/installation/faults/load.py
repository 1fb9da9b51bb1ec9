"""Load on an installation: a job whose trainers number their lines, requests to the API, and a reader of the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from regatta import Client, Job
from regatta.errors import PortalError
from tests.installation.faults.measurements import Request

# Each process has a name of its own, because a replacement numbers its lines from 1 again.
_CODE = """\
import os
import time
import uuid
import numpy as np
from runtime import dist

process = os.environ["REGATTA_REPLICA"] + "/" + uuid.uuid4().hex[:6]
job = dist.init()
p = job.params({"w": np.zeros((64, 10), "f4")}, opt=dist.Momentum(0.1, 0.9))
number = 0
for x, y in job.steps(job.reader("public/digits", batch=64), passes=100_000):
    z = x @ p["w"]
    z -= z.max(1, keepdims=True)
    s = np.exp(z)
    s /= s.sum(1, keepdims=True)
    cost = -np.log(s[np.arange(len(y)), y]).mean()
    s[np.arange(len(y)), y] -= 1
    p.push_pull({"w": x.T @ s / len(y)}, n=len(y))
    job.report(cost=float(cost))
    number += 1
    print(f"step {process} {number} {time.time():.3f}", flush=True)
    time.sleep(0.25)
"""
REQUEST_SECONDS, _PAUSE_SECONDS = 20.0, 0.25
_ROLE = {"cpu": 0.1, "memory": "256Mi"}


def specification(name: str) -> dict[str, Any]:
    """Return a job of two parameter servers and two trainers that prints about eight lines a second, without end."""
    return {
        "name": name,
        "framework": "native",
        "entrypoint": "train.py",
        "files": {"train.py": _CODE},
        "dataset": "public/digits",
        "passes": 100_000,
        "retries": 3,
        "roles": {"trainer": {"replicas": 2, "min": 1, **_ROLE}, "pserver": {"replicas": 2, **_ROLE}},
    }


class Requests:
    """Asks for the job four times a second, and records each response."""

    def __init__(self, make: Callable[[], httpx.Client], path: str) -> None:
        self.made: list[Request] = []
        self._make, self._path, self._ended = make, path, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(offset,), daemon=True) for offset in range(4)]
        for thread in self._threads:
            thread.start()

    def _ask(self, offset: int) -> None:
        """One request a second and thread, so that a slow one does not hold up the others."""
        due = time.monotonic() + offset * _PAUSE_SECONDS
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            due = max(due + len(self._threads) * _PAUSE_SECONDS, time.monotonic())
            began, clock = time.time(), time.monotonic()
            status, code = self._answer()
            self.made.append(Request(began, time.monotonic() - clock, status, code))

    def _answer(self) -> tuple[int, str]:
        try:
            with self._make() as http:
                response = http.get(self._path)
        except httpx.HTTPError as error:
            return 0, type(error).__name__
        if response.status_code == 200:
            return 200, ""
        is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
        return response.status_code, str(response.json().get("code", "")) if is_problem else response.text[:60]

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


class LogReader:
    """Follows the log of the job, as ``regatta logs --follow`` does. ``lines`` have arrived, by cursor."""

    def __init__(self, client: Client, job: Job) -> None:
        self.cursors: list[int] = []
        self._client, self._job, self._ended = client, job, threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._ended.wait(0.2):
            try:
                for line in self._client.jobs.logs.follow(
                    self._job.id, self.cursors[-1] if self.cursors else 0, enough=self._ended.is_set
                ):
                    self.cursors.append(line.seq)
            except PortalError:
                continue

    def stop(self) -> int:
        """Stop, and return the number of cursors that are missing or doubled."""
        self._ended.set()
        self._thread.join()
        read = set(self.cursors)
        return len(set(range(1, max(read, default=0) + 1)) - read) + len(self.cursors) - len(read)
