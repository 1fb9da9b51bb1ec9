"""P: start of the portal and of a job.

P1  ``make run`` on a fresh clone until the ready line, and the later starts; each fresh clone is another.
P2  ``POST jobs`` of the digits example until its first cost point can be read; its code is different each time.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench.report import Row
from bench.scale import scale
from jobs.examples import catalogue

ROUNDS = scale(5, 1)
FRESH_GOAL, LATER_GOAL, FIRST_POINT_GOAL = 60.0, 5.0, 3.0
PASSWORD = "bench only, thrown away"
_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = 0.01
# Polling takes processor time from the job whose start is measured.
_ASK_SECONDS = 0.05


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        fresh = [_first_start(clone := Path(scratch) / f"clone-{number}") for number in range(ROUNDS)]
        later = [_later_start(clone) for _ in range(ROUNDS)]
        with running(clone) as portal:
            first_points = [seconds_to_first_point(portal) for _ in range(ROUNDS)]
    return [
        _row("P1", f"fresh clone, packages cached, median of {ROUNDS}: seconds to ready", median(fresh), FRESH_GOAL),
        _row("P1", f"later start, median of {ROUNDS}: seconds to ready", median(later), LATER_GOAL),
        _row("P2", f"POST to first cost point, median of {ROUNDS}: seconds", median(first_points), FIRST_POINT_GOAL),
    ]


def _row(name: str, case: str, value: float, goal: float) -> Row:
    return Row(row=name, case=case, value=round(value, 3), goal=f"<= {goal:g}", met=value <= goal)


def _first_start(clone: Path) -> float:
    subprocess.run(["git", "clone", "--quiet", "--local", ".", str(clone)], check=True)
    return _later_start(clone)


def _later_start(clone: Path) -> float:
    with running(clone) as portal:
        return portal.seconds_to_ready


@dataclass(frozen=True)
class Running:
    address: str
    seconds_to_ready: float


@contextmanager
def running(clone: Path) -> Iterator[Running]:
    """Run ``make run`` in the clone, until the block is left. The clone has its own data directory."""
    with _started(["make", "run"], clone, clone / "run.log") as portal:
        yield portal


@contextmanager
def running_here(data: Path, host: str = "127.0.0.1", **settings: str) -> Iterator[Running]:
    """Run the portal of this checkout, until the block is left. Its data directory is ``data``."""
    command = [sys.executable, "manage.py", "up"]
    with _started(command, Path.cwd(), data / "run.log", host, REGATTA_DATA_DIR=str(data), **settings) as portal:
        yield portal


@contextmanager
def _started(
    command: Sequence[str], folder: Path, output: Path, host: str = "127.0.0.1", **settings: str
) -> Iterator[Running]:
    port = _free_port()
    address = f"http://{host}:{port}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REGATTA_")}
    # The speed of the portal is measured, not the submission limit of one user.
    own = {"PORT": str(port), "REGATTA_HOST": host, "REGATTA_INGEST_URL": address}
    own |= {"REGATTA_ADMIN_PASSWORD": PASSWORD, "REGATTA_SUBMIT_RATE": "100000/min"}
    environment |= {**own, **settings}
    begun = time.monotonic()
    with output.open("w") as file:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=file, stderr=file)
    try:
        _wait_for_ready(process, output)
        yield Running(address, time.monotonic() - begun)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


@contextmanager
def signed_in(portal: Running) -> Iterator[httpx.Client]:
    """Provide an HTTP client of the administrator."""
    with httpx.Client(base_url=portal.address, timeout=60) as http:
        http.headers["Authorization"] = f"Bearer {_token(http)}"
        yield http


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _wait_for_ready(process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while "is ready at" not in output.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"The portal did not start:\n{output.read_text()}")
        time.sleep(_POLL_SECONDS)


def seconds_to_first_point(portal: Running, *, fresh: bool = True, **changes: object) -> float:
    """Submit the digits example and read its cost until there is a point. Then cancel it and wait for its end.

    ``changes`` replace fields of its specification. ``fresh``: with code that no earlier job had.
    """
    spec = {**next(example.spec for example in catalogue() if "digits" in example.name), **changes}
    if fresh:
        # Artifacts built from an earlier job's code cannot be reused by this one.
        spec["files"] = {name: _changed(name, text) for name, text in spec["files"].items()}
    with signed_in(portal) as http:
        namespace = namespace_of(http)
        begun = time.monotonic()
        job = answer_of(http.post(f"/api/v1/namespaces/{namespace}/jobs", json=spec))
        wait_until(http, f"/api/v1/jobs/{job['id']}/metrics?keys=cost", has_points)
        seconds = time.monotonic() - begun
        cancel(http, job["id"])
    return seconds


def _changed(name: str, text: str) -> str:
    return f"{text}\n# {uuid.uuid4()}\n" if name.endswith(".py") else text


def cancel(http: httpx.Client, job: str) -> None:
    """Cancel the job and wait for its end."""
    http.post(f"/api/v1/jobs/{job}/cancel").raise_for_status()
    wait_until(http, f"/api/v1/jobs/{job}", lambda body: body["finished"] is not None)


def _token(http: httpx.Client) -> str:
    body = {"username": "admin", "password": PASSWORD, "name": "bench"}
    token: str = answer_of(http.post("/api/v1/auth/token", json=body))["token"]
    return token


def namespace_of(http: httpx.Client) -> str:
    name: str = answer_of(http.get("/api/v1/me"))["namespaces"][0]["name"]
    return name


def has_points(body: Mapping[str, Any]) -> bool:
    return bool(body["series"].get("cost", {}).get("x"))


def wait_until(http: httpx.Client, path: str, condition: Callable[[Any], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition(answer_of(http.get(path))):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{path} did not become what was waited for.")
        time.sleep(_ASK_SECONDS)


def answer_of(answer: httpx.Response) -> Any:
    answer.raise_for_status()
    return answer.json()
