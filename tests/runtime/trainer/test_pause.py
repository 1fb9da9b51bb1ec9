"""Pauses of a whole attempt: all trainers at the same version, and the same bits as without a pause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs.lifecycle.pauses import Standing, is_done, target_of
from runtime import contract
from runtime.master.queue_clock import QueueClock
from runtime.trainer.pause_gate import PauseGate
from tests.runtime.trainer.attempt import Attempt
from tests.waiting import until

SCRIPT = """
import time
import numpy as np
from runtime import dist

job = dist.init()
p = job.params({"w": np.zeros((10, 1), "f4")}, opt=dist.SGD(0.01))
for x, y in job.steps(job.reader(batch=16, shuffle=64)):
    grad = x.T @ (x @ p["w"] - y.reshape(-1, 1)) / len(x)
    job.report(version=p.push_pull({"w": grad.astype("f4")}))
    time.sleep(0.01 * (1 + job.trainer))
np.save(f"result-{job.trainer}.npy", p["w"])
"""
TRAINERS = ("trainer-0", "trainer-1")


class Paused(Attempt):
    """An attempt whose stand-in for the agents keeps the last answer of each process."""

    def __init__(self, directory: Path, script: Path, **variables: str) -> None:
        self.answers: dict[str, tuple[bool, int | None]] = {}
        super().__init__(directory, script, **variables)

    def _take(self, role: str, index: int, replica: Any, message: dict[str, Any]) -> None:
        if message["op"] == contract.PAUSED:
            self.answers[f"{role}-{index}"] = message["stopped"], message["version"]
        else:
            super()._take(role, index, replica, message)

    def ask(self, on: bool, target: int = 0) -> None:
        for name in ("master-0", *TRAINERS):
            message = {"op": contract.PAUSE, "on": on, "target": target}
            self.replicas[name].link.sendall(json.dumps(message).encode() + b"\n")

    def stand(self) -> int | None:
        """Ask as the portal does until all trainers stand at the same version, and return it."""
        target = 0

        def stand_together() -> bool:
            nonlocal target
            self.answers.clear()
            self.ask(True, target)
            until("all have answered", lambda: set(TRAINERS) <= set(self.answers))
            found = [Standing(*self.answers[name]) for name in TRAINERS]
            target = max(target, target_of(found))
            return is_done(found, on=True)

        until("all stand", stand_together, every=0.05)
        return self.answers[TRAINERS[0]][1]

    def versions(self) -> list[float]:
        return [value for name in TRAINERS for _, _, key, value in self.replicas[name].points if key == "version"]


def result(directory: Path, *, pauses: bool) -> bytes:
    directory.mkdir()
    (directory / "train.py").write_text(SCRIPT)
    variables = {
        contract.DATASET: "public/diabetes",
        contract.TRAINERS: "2",
        contract.PASSES: "1",
        contract.PSERVERS: "1",
    }
    attempt = Paused(directory, directory / "train.py", **variables)
    try:
        for role, index in ((contract.MASTER, 0), (contract.PSERVER, 0), (contract.TRAINER, 0), (contract.TRAINER, 1)):
            attempt.start(role, index)
        if pauses:
            until("it trains", lambda: max(attempt.versions(), default=0) >= 3, story=lambda: attempt.log("trainer-0"))
            version, before = attempt.stand(), len(attempt.versions())
            assert attempt.stand() == version
            assert len(attempt.versions()) == before
            attempt.ask(on=False)
        for name in TRAINERS:
            assert attempt.wait(name, 30) == 0, attempt.log(name)
        return np.load(attempt.output / "result-0.npy").tobytes()
    finally:
        attempt.close()


@pytest.mark.processes
def test_a_paused_job_stops_at_one_version_and_has_the_same_parameters_in_the_end(tmp_path: Path) -> None:
    assert result(tmp_path / "paused", pauses=True) == result(tmp_path / "plain", pauses=False)


# --- The gate of a trainer -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("version", "stands"), [(4, False), (5, True), (6, True), (None, True)])
def test_a_trainer_stops_at_the_target_or_a_later_version(version: int | None, stands: bool) -> None:
    reports: list[tuple[bool, int | None]] = []
    gate = PauseGate(lambda stopped, at: reports.append((stopped, at)))
    gate.request(on=True, target=5)
    ends = iter((False, True))
    gate.wait(version, lambda: next(ends, True))
    assert ((True, version) in reports) is stands
    assert reports[-1] == (False, version)


def test_a_trainer_that_has_to_end_leaves_the_gate() -> None:
    gate = PauseGate(lambda _stopped, _version: None)
    gate.request(on=True, target=0)
    gate.wait(1, lambda: "it was asked to end")


def test_a_trainer_in_a_step_answers_with_the_version_at_its_beginning() -> None:
    reports: list[tuple[bool, int | None]] = []
    gate = PauseGate(lambda stopped, at: reports.append((stopped, at)))
    gate.note(7)
    gate.request(on=True, target=0)
    assert reports == [(False, 7)]


# --- The clock of the master's queue ---------------------------------------------------------------------------------
def test_the_clock_of_the_queue_stands_still_during_pauses() -> None:
    now = [10.0]
    clock = QueueClock(lambda: now[0])
    for on, at, seen in ((True, 12.0, 12.0), (True, 15.0, 12.0), (False, 20.0, 12.0), (False, 25.0, 17.0)):
        now[0] = at
        clock.pause(on)
        assert clock() == seen
