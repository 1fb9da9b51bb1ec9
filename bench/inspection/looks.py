"""N4: stacks of eight replicas at once, and the slow-down of a training by ten seconds of sampling.

A whole portal runs the jobs. The time of the stacks is that of the request to the portal. Steps are counted by the
training itself, which reports twice a second. Windows with and without sampling take turns, so that a change of the
machine's speed concerns both; the slow-down is the median of the ratios of neighbours. The peer is ``py-spy record`` on
the same process, in windows of its own; it is absent where it is not installed or cannot read the process.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx

from bench import peers
from bench.environment.servers import Absent
from bench.inspection.replica_processes import script_of
from bench.pages.start import answer_of, cancel, has_points, namespace_of, running_here, signed_in, wait_until
from bench.report import Row, at_most
from bench.scale import scale

ROUNDS = scale(5, 1)
STACKS_GOAL_S, SLOWER_GOAL_PERCENT = 1.0, 2.0
REPLICAS = 8  # with the parameter server and the master
SECONDS = scale(10, 2)

# The digits, with a hidden layer; no step is slowed down.
_TRAINS = """\
import time
import numpy as np
from runtime import dist

job = dist.init()
rng = np.random.default_rng(1)
shapes = {"w1": (64, 256), "w2": (256, 10)}
model = {name: (rng.normal(size=shape) * 0.05).astype("f4") for name, shape in shapes.items()}
p = job.params(model, opt=dist.SGD(0.05))


def gradients(x, y):
    hidden = np.maximum(x @ p["w1"], 0)
    e = np.exp(hidden @ p["w2"])
    s = e / e.sum(1, keepdims=True)
    s[np.arange(len(y)), y] -= 1
    s /= len(y)
    return {"w1": x.T @ ((s @ p["w2"].T) * (hidden > 0)), "w2": hidden.T @ s}


steps, reported = 0, 0.0
for x, y in job.steps(job.reader("public/digits", batch=64)):
    p.push_pull(gradients(x, y))
    steps += 1
    if time.time() - reported >= 0.5:
        reported = time.time()
        job.report(cost=0.0, steps=steps, at=reported)
"""
# Processes that are looked at, and take little of the machine.
_IDLES = _TRAINS.replace("    steps += 1\n", "    steps += 1\n    time.sleep(0.05)\n")


def measure() -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch,
        running_here(Path(scratch)) as portal,
        signed_in(portal) as http,
    ):
        with _job(http, _IDLES, trainers=REPLICAS - 2) as job:
            taken = [_stacks(http, job) for _ in range(ROUNDS)]
        case = f"stacks of {REPLICAS} replicas at once, median of {ROUNDS}: s"
        yield at_most("N4", case, median(taken), STACKS_GOAL_S)
        with _job(http, _TRAINS, trainers=1) as job:
            yield _row_of_sampling(http, job, Path(scratch))


@contextmanager
def _job(http: httpx.Client, script: str, trainers: int) -> Iterator[str]:
    """Provide a job that trains, until the block is left."""
    own = {"cpu": 0.1, "memory": "256Mi"} if trainers > 1 else {"cpu": 1, "memory": "512Mi"}
    spec = {
        "name": "looks",
        "framework": "native",
        "entrypoint": "train.py",
        "files": {"train.py": script},
        "dataset": "public/digits",
        "passes": 100_000,
        "roles": {"trainer": {"replicas": trainers, **own}, "pserver": {"replicas": 1, **own}},
    }
    job: str = answer_of(http.post(f"/api/v1/namespaces/{namespace_of(http)}/jobs", json=spec))["id"]
    try:
        wait_until(http, f"/api/v1/jobs/{job}/metrics?keys=cost", has_points)
        yield job
    finally:
        cancel(http, job)


# --- Stacks ----------------------------------------------------------------------------------------------------------
def _stacks(http: httpx.Client, job: str) -> float:
    """Return the seconds of taking the stacks. Raises RuntimeError if a replica is missing."""
    begun = time.monotonic()
    answer = answer_of(http.post(f"/api/v1/jobs/{job}/stacks"))
    seconds = time.monotonic() - begun
    shown = [one["replica"] for one in answer["replicas"] if one["state"] == "running" and one["threads"]]
    if len(shown) != REPLICAS:
        raise RuntimeError(f"Of {REPLICAS} replicas, the stacks of {', '.join(shown) or 'none'} came.")
    return seconds


# --- Sampling --------------------------------------------------------------------------------------------------------
def _row_of_sampling(http: httpx.Client, job: str, data: Path) -> Row:
    ways: dict[str, Callable[[], object]] = {"ours": lambda: _sample(http, job)}
    record, why = _peer(data)
    if record is not None:
        ways["py-spy"] = record
    windows: dict[str, list[tuple[float, float]]] = {"plain": [], **{way: [] for way in ways}}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            windows["plain"].append(_during(lambda: time.sleep(SECONDS)))
            windows[name].append(_during(way))
    series = answer_of(http.get(f"/api/v1/jobs/{job}/metrics", params={"keys": "steps,at", "buckets": 5000}))["series"]
    points = list(zip(series["at"]["max"], series["steps"]["max"], strict=True))
    plain = [rate(points, *window) for window in windows["plain"]]
    slower = {
        way: median(percent_slower(plain[place :: len(ways)], [rate(points, *window) for window in windows[way]]))
        for place, way in enumerate(ways)
    }
    case = f"training slower by {SECONDS} s of sampling, median of {ROUNDS}: %"
    peer = slower.get("py-spy")
    note = f"py-spy: {peer:.2f} %" if peer is not None else f"peer: none, {why}"
    return at_most("N4", case, round(slower["ours"], 2), SLOWER_GOAL_PERCENT, note=note)


def _sample(http: httpx.Client, job: str) -> None:
    body = {"seconds": SECONDS, "replicas": ["trainer-0"]}
    found = answer_of(http.post(f"/api/v1/jobs/{job}/flamegraph", json=body, timeout=60))["replicas"]
    if not found or not found[0]["samples"]:
        raise RuntimeError("The recording has no samples.")


def _during(action: Callable[[], object]) -> tuple[float, float]:
    """Return the begin and the end of the ``SECONDS`` in which an action is going on."""
    begun = time.time()
    action()
    return begun, begun + SECONDS


def rate(points: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """Return the steps per second between two times, from points of (unix time, steps so far)."""
    inside = [point for point in points if begin <= point[0] <= end]
    if len(inside) < 2:
        raise RuntimeError("The training reported too seldom.")
    (first, before), (last, after) = inside[0], inside[-1]
    return (after - before) / (last - first)


def percent_slower(plain: Sequence[float], sampled: Sequence[float]) -> list[float]:
    """Return by how many percent each rate is below its neighbour's."""
    return [100 * (1 - slow / fast) for fast, slow in zip(plain, sampled, strict=True)]


def _peer(data: Path) -> tuple[Callable[[], object] | None, str]:
    """Return a recording by py-spy, or why there is none."""
    installed = Path(peers.PYTHON).with_name("py-spy")
    program = str(installed) if installed.exists() else shutil.which("py-spy")
    if program is None:
        return None, "py-spy is not installed"
    try:
        process = script_of(data, "trainer-0")
    except Absent as error:
        return None, str(error)
    command = [program, "record", "--format", "raw", "--output", str(data / "samples"), "--pid", str(process)]
    tried = subprocess.run([*command, "--duration", "1"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return None, f"py-spy cannot read the process: {' '.join(tried.stderr.split())[:100]}"
    timed = [*command, "--duration", str(SECONDS)]
    return lambda: subprocess.run(timed, capture_output=True, check=True), ""
