"""Run one measurement in a separate process within a time limit, and clean up after it.

``python -m bench.runner MODULE FILE`` is that process. It appends each row to the file as soon as it is measured, so
that rows measured before an error or the timeout count.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.catalogue import GOALS, Measurement
from bench.report import Row, from_json, missed, to_json

ROOT = Path(__file__).resolve().parent.parent
# Time to stop servers and remove files after the signal to end.
GRACE_SECONDS = 30.0
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG: if the runner is killed, no measurement keeps running


@dataclass(frozen=True)
class Outcome:
    """Result of a measurement. ``error`` is empty if it completed."""

    rows: Sequence[Row]
    error: str
    seconds: float


def run(measurement: Measurement, limit: float) -> Outcome:
    """Run a measurement. Rows that were not yielded are MISSED, with the reason."""
    # Processes that a killed measurement leaves running become children of this process.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        output, errors = Path(scratch) / "rows", Path(scratch) / "error"
        output.touch()
        errors.touch()
        command = [sys.executable, "-m", "bench.runner", measurement.module, str(output), str(errors)]
        process = subprocess.Popen(command, cwd=ROOT, env=environment(), start_new_session=True)
        error = ""
        try:
            status = process.wait(limit)
            error = "" if status == 0 else errors.read_text() or f"it ended with status {status}"
        except subprocess.TimeoutExpired:
            error = f"it took longer than {limit:g} s"
        finally:
            _end(process)
        rows = [from_json(json.loads(line)) for line in output.read_text().splitlines()]
    seen = {row.row for row in rows}
    rows += [missed(name, "not measured", GOALS[name], error or "the measurement left it out")
             for name in measurement.rows if name not in seen or error]  # fmt: skip
    return Outcome(rows, error, time.monotonic() - begun)


def environment() -> dict[str, str]:
    """Return our environment with the packages of this checkout first, so that a clone works without installation."""
    paths = [str(ROOT), str(ROOT / "client"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the measurement if it is still running, and all processes that it left."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    while left := list(_descendants(os.getpid())):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        time.sleep(0.05)


def _descendants(ancestor: int) -> Iterator[int]:
    parents = dict(_parents())
    for pid in parents:
        above = pid
        while above and above != ancestor:
            above = parents.get(above, 0)
        if above and pid != ancestor:
            yield pid


def _parents() -> Iterator[tuple[int, int]]:
    """Yield every process and its parent."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            yield int(stat.parent.name), int(stat.read_text().rpartition(")")[2].split()[1])


# --- Process of a measurement ----------------------------------------------------------------------------------------
def _measure(module: str, output: Path, errors: Path) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    try:
        measure: Callable[[], Sequence[Row]] = importlib.import_module(f"bench.{module}").measure
        with output.open("a", encoding="utf-8") as file:
            for row in measure():
                file.write(json.dumps(to_json(row)) + "\n")
                file.flush()
    except Exception as error:  # noqa: BLE001 what goes wrong is a result: the row is MISSED, and the next is measured
        traceback.print_exc()
        errors.write_text(f"{type(error).__name__}: {error}".splitlines()[0])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_measure(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
