"""D5: share of time in which a trainer waits for its data, in real jobs of two trainers.

The script measures from requesting a batch until receiving it, relative to the total time from the second task on. One
job trains the digits example's model on digits, the other uses records of 1 KB that are uploaded before. The two take
turns, and the median of five jobs each counts. Between two passes all trainers wait for the last one. This counts too
and is reported separately: the wait for the first batch of a pass, and the part of it from the end of a pass
(``dist.EndPass``) to the beginning of the next (``dist.BeginPass``). In that part there is nothing to read: the other
trainers push their last gradients, and the master commits the end of the pass.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.pages import start as portal
from bench.report import Row, at_most
from bench.scale import scale
from regatta import Client
from runtime.data.recordio import Writer

ROUNDS, GOAL = scale(5, 1), 3.0
Share = tuple[float, float, float]
# As many chunks for one trainer as for the other: a trainer with fewer waits for the other, and not for its data.
RECORDS, RECORD_BYTES, BATCH = 6 * 8192, 1024, 128
_SCRIPT = """\
import time
import numpy as np
from runtime import dist

job = dist.init()
p = job.params({"w": np.zeros((WIDTH, 10), "f4"), "b": np.zeros(10, "f4")}, opt=dist.SGD(0.01))
DECODE
waited, between, closed, begun, count = 0.0, 0.0, 0.0, None, 0
passes, ended = [], [0.0]

def open_pass(event):
    global closed
    passes.append(event)
    if begun is not None:
        closed += time.perf_counter() - ended[-1]

job.on(dist.EndPass, lambda event: ended.append(time.perf_counter()))
job.on(dist.BeginPass, open_pass)
steps = iter(job.steps(job.reader(NAME, batch=128, decode=decode)))
while True:
    before, asked = len(passes), time.perf_counter()
    batch = next(steps, None)
    got = time.perf_counter()
    if batch is None:
        break
    count += 1
    if count == 20:
        begun = got
    elif count > 20:
        waited += got - asked
        between += got - asked if len(passes) > before else 0.0
    x, y = batch
    z = x @ p["w"] + p["b"]
    z -= z.max(1, keepdims=True)
    s = np.exp(z)
    s /= s.sum(1, keepdims=True)
    s[np.arange(len(y)), y] -= 1
    p.push_pull({"w": x.T @ (s / len(y)), "b": s.mean(0)}, n=len(y))
print("share", *(100 * part / (asked - begun) for part in (waited, between, closed)), flush=True)
"""
_OF_BYTES = """\
def decode(record):
    row = np.frombuffer(record, "u1")
    return row.astype("f4"), int(row[0]) % 10
"""


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        data = Path(scratch) / "data"
        data.mkdir()
        with portal.running_here(data) as running, portal.signed_in(running) as http:
            token = http.headers["Authorization"].removeprefix("Bearer ")
            with Client(running.address, token) as client:
                name = f"{client.namespaces.default()}/kilobytes"
                client.datasets.upload(name, _records(Path(scratch) / "data.recordio"))
                jobs = {
                    "digits": ("public/digits", 64, "decode = None", 20),
                    "records of 1 KB": (name, RECORD_BYTES, _OF_BYTES, 3),
                }
                rounds = [{what: _share(client, *job) for what, job in jobs.items()} for _ in range(ROUNDS)]
    return [_row(what, [shares[what] for shares in rounds]) for what in jobs]


def _row(what: str, shares: Sequence[Share]) -> Row:
    share, between, closed = sorted(shares)[len(shares) // 2]
    note = f"of that {between:.2f} between two passes, {closed:.2f} while no pass is open"
    return at_most("D5", f"{what}: waiting for data, % of the time of its steps", round(share, 2), GOAL, note=note)


def _records(path: Path) -> Path:
    with path.open("wb") as file, Writer(file, compressor="none", max_chunk_bytes=8 << 20) as writer:
        for number in range(RECORDS):
            writer.write(number.to_bytes(4, "little") * (RECORD_BYTES // 4))
    return path


def _share(client: Client, name: str, width: int, decode: str, passes: int) -> Share:
    """Return the share of the trainer that waits more: in total, between two passes, and while no pass is open."""
    script = _SCRIPT.replace("NAME", repr(name)).replace("WIDTH", str(width)).replace("DECODE", decode)
    spec: dict[str, Any] = {
        "name": "waiting",
        "files": {"train.py": script},
        "dataset": name,
        "passes": passes,
        "roles": {"trainer": {"replicas": 2}},
    }
    job = client.jobs.wait(client.jobs.submit(spec, namespace=client.namespaces.default()).id, 300)
    lines = [line.text for line in client.jobs.logs.read(job.id)]
    found = [re.fullmatch(r"share ([\d.]+) ([\d.]+) ([\d.]+)", text) for text in lines]
    shares = [(float(match[1]), float(match[2]), float(match[3])) for match in found if match]
    if job.state != "SUCCEEDED" or not shares:
        print("\n".join(lines[-20:]), file=sys.stderr)
        raise RuntimeError(f"The job ended as {job.state}: {job.why}")
    return max(shares)
