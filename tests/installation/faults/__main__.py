"""``python -m tests.installation.faults [WORD ...]``: install, run the faults with one of the words, print a table.

Needs KUBECONFIG and REGISTRY; KUBE_NODE_UP and KUBE_NODE_DOWN for the death of a node. The exit status is 1 if a line
was lost or doubled, or a request failed other than with an allowed 503.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

from tests.installation.faults import load, measurements
from tests.installation.faults.cases import FAULTS, Fault
from tests.installation.faults.scene import Scene
from tests.installation.installation import Installation
from tests.installation.site import remove_all
from tests.waiting import let_pass, until

_QUIET_SECONDS = 3.0
_COLUMNS = ("fault", "job's pause", "API errors", "slowest", "normal after", "lost", "doubled", "attempt")


@dataclass(frozen=True)
class Row:
    """What one fault did. Times in seconds; ``normal`` from the end of the fault."""

    fault: str
    pause: float
    requests: int
    failed: dict[int, int]
    slowest: float
    normal: float
    lost: int
    doubled: int
    attempt: int
    is_allowed: bool

    def cells(self) -> tuple[str, ...]:
        failed = ", ".join(f"{count} × {status or 'none'}" for status, count in sorted(self.failed.items())) or "0"
        times = (f"{self.pause:.1f} s", f"{failed} of {self.requests}", f"{self.slowest:.1f} s", f"{self.normal:.0f} s")
        return (self.fault, *times, str(self.lost), str(self.doubled), str(self.attempt))


def run(scene: Scene, requests: load.Requests, fault: Fault) -> Row:
    """Do harm, wait until everything is ready and the job goes on, and measure."""
    began = time.time()
    fault.harm(scene)
    over = time.time()
    ready = scene.wait_until_ready()
    until("the job makes steps", lambda: _newest(scene) > ready, 300, every=0.5, story=scene.story)
    let_pass(_QUIET_SECONDS)
    end = time.time() - 1.0  # later lines may be on their way
    found = measurements.steps(line.text for line in scene.client.jobs.logs.read(scene.job.id))
    answers = measurements.answers(requests.made, began, end)
    continuity = measurements.continuity(found)
    return Row(
        fault=fault.name,
        pause=measurements.pause(found, began, end),
        requests=answers.total,
        failed=answers.failed,
        slowest=answers.slowest,
        normal=measurements.until_normal(requests.made, found, over, ready),
        lost=continuity.lost,
        doubled=continuity.doubled + continuity.out_of_order,
        attempt=scene.client.jobs.get(scene.job.id).attempt or 0,
        is_allowed=continuity == measurements.Continuity(0, 0, 0) and set(answers.failed) <= _allowed(fault),
    )


def _allowed(fault: Fault) -> set[int]:
    return {503} if fault.may_refuse else set()


def _newest(scene: Scene) -> float:
    """Return the time of the newest step of the job."""
    found = measurements.steps(line.text for line in scene.client.jobs.logs.tail(scene.job.id, 20))
    return max((step.time for step in found), default=0.0)


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [_COLUMNS, tuple("---" for _ in _COLUMNS), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> int:
    """Install, run the faults, print the table, remove everything."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.installation.faults", description="Faults of an installation"
    )
    parser.add_argument("words", nargs="*", help="run only faults whose names contain one of these words")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if not options.words or any(word in fault.name for word in options.words)]
    has_node = {"KUBE_NODE_UP", "KUBE_NODE_DOWN"} <= os.environ.keys()
    for fault in chosen:
        if fault.needs_node and not has_node:
            print(f"LEFT OUT {fault.name}: KUBE_NODE_UP and KUBE_NODE_DOWN are not set.", flush=True)
    chosen = [fault for fault in chosen if has_node or not fault.needs_node]
    with tempfile.TemporaryDirectory() as folder:
        installation = Installation(Path(folder))
        try:
            installation.install()
            rows, unread = _all(installation, chosen)
            print(f"\n{table(rows)}\n\n{unread} lines are missing or doubled for a reader of the log.", flush=True)
            if options.json:
                options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
            print(rebuilt(installation), flush=True)
            installation.uninstall()
        finally:
            remove_all(installation.kubectl)
            installation.close()
    return 0 if not unread and all(row.is_allowed for row in rows) else 1


def rebuilt(installation: Installation) -> str:
    """Back up, uninstall, install with the same secrets, and restore. Return what was compared."""
    with installation.client() as client:
        before = {job.id: len(list(client.jobs.logs.read(job.id))) for job in client.jobs.list()}
    began = time.monotonic()
    installation.back_up()
    installation.uninstall()
    assert installation.objects_left() == []
    installation.install_again()
    installation.restore()
    until("the portal answers", installation.answers, 300)
    with installation.client() as client:
        after = {job.id: len(list(client.jobs.logs.read(job.id))) for job in client.jobs.list()}
    assert after == before
    return (
        f"Uninstalled, installed again and restored in {time.monotonic() - began:.0f} s: "
        f"{len(after)} jobs and {sum(after.values())} lines, all as before."
    )


def _all(installation: Installation, faults: Sequence[Fault]) -> tuple[list[Row], int]:
    """Return a row for each fault, and the number of lines that a reader of the log missed or got twice."""
    with installation.client() as client:
        job = client.jobs.submit(load.specification("faults"))
        scene = Scene(installation, client, job)
        until("the job trains", lambda: _newest(scene) > 0, 600, every=1, story=scene.story)
        reader = load.LogReader(client, job)
        token = installation.token()
        requests = load.Requests(
            lambda: installation.http(load.REQUEST_SECONDS, Authorization=f"Bearer {token}"), f"/api/v1/jobs/{job.id}"
        )
        rows = []
        for fault in faults:
            rows.append(run(scene, requests, fault))
            print(" | ".join(rows[-1].cells()), flush=True)
        requests.stop()
        unread = reader.stop()
        client.jobs.cancel(job.id)
        client.jobs.wait(job.id, 300)
    return rows, unread


if __name__ == "__main__":
    sys.exit(main())
