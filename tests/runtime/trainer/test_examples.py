"""The shipped examples as real processes: alone, with two trainers, and with one that is killed."""

import hashlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runtime.messages import training as messages
from tests.runtime.trainer.attempt import ROOT, Attempt
from tests.waiting import until

EXAMPLES = ROOT / "jobs" / "examples"
DIGITS = EXAMPLES / "recognise_digits" / "train.py"

pytestmark = pytest.mark.processes


@pytest.fixture
def attempt(tmp_path):
    started = []

    def make(name="one", passes=5, mode="sync", script=DIGITS, **more):
        variables = {
            "REGATTA_MODE": mode,
            "REGATTA_PASSES": str(passes),
            "REGATTA_TRAINERS": "2",
            "REGATTA_DATASET": "public/digits",
            "REGATTA_SEED": "7",
            **more,
        }
        started.append(Attempt(tmp_path / name, script, **variables))
        return started[-1]

    yield make
    for one in started:
        one.close()


def digest(output: Path) -> str:
    arrays = np.load(output / "model.npz")
    return hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()


def accuracy(text: str) -> float:
    return float(re.search(r"test accuracy: ([\d.]+)", text)[1])


@pytest.mark.parametrize(
    ("name", "pattern"), [("recognise_digits", "test accuracy: 0.9[5-9]"), ("fit_a_line", r"R2: 0\.[45]")]
)
def test_an_example_runs_alone(tmp_path, name, pattern):
    script = EXAMPLES / name / "train.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(pattern, done.stdout)
    assert np.load(tmp_path / "model.npz").files


def test_two_trainers_reach_the_accuracy_and_the_same_bits_twice(attempt):
    digests = []
    for name in ("first", "second"):
        one = attempt(name, passes=20)
        one.run(trainers=2)
        assert accuracy(one.log("trainer-0") + one.log("trainer-1")) >= 0.95
        digests.append(digest(one.output))
    assert digests[0] == digests[1]


def test_asynchronous_training_reaches_the_accuracy(attempt):
    one = attempt(passes=20, mode="async")
    one.run(trainers=2, pservers=2)
    assert accuracy(one.log("trainer-0") + one.log("trainer-1")) >= 0.95


@pytest.mark.parametrize("mode", ["ssp(2)", "outer(5)"])
def test_two_trainers_learn_within_a_bound_and_in_rounds(attempt, mode):
    one = attempt(mode=mode)
    one.run(trainers=2, pservers=2)
    assert accuracy(one.log("trainer-0") + one.log("trainer-1")) >= 0.75


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_other_trainer_finishes_when_one_is_stopped(attempt, number):
    one = attempt(passes=20)
    for role, index in (("master", 0), ("pserver", 0), ("trainer", 0), ("trainer", 1)):
        one.start(role, index)
    until("it trains", lambda: len(one.replicas["trainer-1"].points) > 50)
    one.replicas["trainer-1"].process.send_signal(number)
    assert one.wait("trainer-1", 10) == (75 if number == signal.SIGTERM else -signal.SIGKILL)
    assert one.wait("trainer-0", 40) == 0, one.log("trainer-0")
    assert accuracy(one.log("trainer-0")) >= 0.95


def test_a_script_with_fewer_passes_than_the_job_prints_a_message(attempt, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(DIGITS.read_text().replace("passes=80", "passes=1"))
    one = attempt(passes=3, script=script, REGATTA_TRAINERS="1")
    for role in ("master", "pserver", "trainer"):
        one.start(role, 0)
    assert one.wait("trainer-0", 30) == 0, one.log("trainer-0")
    assert messages.PASSES_NOT_ALL_RUN(passes=1, total=3) in one.log("trainer-0")
