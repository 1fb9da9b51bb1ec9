"""Trainers that join and leave in the middle of a pass, as real processes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from runtime import contract
from runtime.messages import training as messages
from tests.messages import mentions
from tests.runtime.trainer.attempt import Attempt
from tests.waiting import until

pytestmark = pytest.mark.processes

SCRIPT = """
import os
import time
import numpy as np
from runtime import dist

job = dist.init()
p = job.params({"w": np.zeros(4, "f4")})
for x, y in job.steps(job.reader(batch=8)):
    p.push_pull({"w": np.ones(4, "f4")}, n=len(y))
    print("step", flush=True)
    if not os.path.exists("everybody-is-there"):
        time.sleep(0.25)  # a pass of a minute, for another trainer to start in
"""


def wait_for(attempt: Attempt, name: str, text: str, times: int = 1) -> None:
    until(f"{name} prints {text}", lambda: attempt.log(name).count(text) >= times, story=lambda: attempt.log(name))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_trainer_joins_in_the_middle_of_a_pass_and_the_first_one_leaves_without_blame(tmp_path: Path, mode: str):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    attempt = Attempt(
        tmp_path / "attempt",
        script,
        **{contract.DATASET: "public/digits", contract.PASSES: "2", contract.TRAINERS: "1", contract.MODE: mode},
    )
    try:
        attempt.start(contract.MASTER, 0)
        attempt.start(contract.PSERVER, 0)
        attempt.start(contract.TRAINER, 0)
        wait_for(attempt, "trainer-0", "step", 3)
        attempt.start(contract.TRAINER, 1)
        wait_for(attempt, "trainer-1", "step", 3)
        assert not mentions(attempt.log("master-0"), messages.PASS_DONE_DETAILS, number=1)
        (attempt.output / "everybody-is-there").touch()
        attempt.replicas["trainer-0"].process.send_signal(signal.SIGTERM)
        assert attempt.wait("trainer-0", 20.0) == contract.EXIT_RESTART
        assert attempt.wait("trainer-1", 60.0) == contract.EXIT_OK
        assert attempt.wait("master-0", 20.0) == contract.EXIT_OK
        log = attempt.log("master-0")
        assert "trainer-0 left.\n" in log  # it had released its task: nothing had to be taken away
        assert mentions(log, messages.PASS_DONE_DETAILS, number=1) and messages.ALL_PASSES_DONE(count=2) in log
    finally:
        attempt.close()
