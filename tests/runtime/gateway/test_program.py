"""Training by a program without any Python: shell, curl and awk."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runtime import contract
from runtime.data import catalogue
from tests.runtime.trainer.attempt import ROOT, Attempt
from tests.waiting import until

pytestmark = pytest.mark.processes

PROGRAM = Path(__file__).with_name("train.sh")
LAUNCHER = "import sys\nfrom runtime.gateway.__main__ import main\nsys.exit(main(['--', 'sh', sys.argv[1]]))\n"


@pytest.fixture
def statistics(tmp_path):
    """Return a file with mean and scale of the label and of each measurement."""
    x, y = catalogue.load(catalogue.find("public/diabetes"), "train")
    columns = np.column_stack([y, x])
    path = tmp_path / "stats.csv"
    np.savetxt(path, np.column_stack([columns.mean(0), columns.std(0)]), delimiter=",")
    return path


def error_of(model):
    """Return the mean square error of a saved line over the training records, standardised: 1 without any learning."""
    x, y = catalogue.load(catalogue.find("public/diabetes"), "train")
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    return float(np.mean((x @ model["w"] + model["b"] - y) ** 2))


def environment(directory, statistics, passes):
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "STATS": str(statistics),
        contract.DATASET: "public/diabetes",
        contract.PASSES: str(passes),
        contract.OUTPUT_DIR: str(directory),
    }


def test_a_shell_script_trains_alone(tmp_path, statistics):
    command = [sys.executable, "-m", "runtime.gateway", "--", "sh", str(PROGRAM)]
    ended = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path, statistics, 3), timeout=60, check=False)
    assert ended.returncode == 0
    assert error_of(np.load(tmp_path / "model.npz")) < 0.6


def test_two_shell_scripts_train_as_trainers_of_one_job(tmp_path, statistics):
    launcher = tmp_path / "launch.py"
    directories = "import os\nos.mkdir(os.environ['REGATTA_INDEX'])\nos.chdir(os.environ['REGATTA_INDEX'])\n"
    launcher.write_text(directories + LAUNCHER.replace("sys.argv[1]", repr(str(PROGRAM))))
    variables = {
        contract.TRAINERS: "2",
        contract.PSERVERS: "1",
        contract.PASSES: "3",
        contract.DATASET: "public/diabetes",
        "STATS": str(statistics),
    }
    attempt = Attempt(tmp_path / "attempt", launcher, **variables)
    try:
        attempt.run(trainers=2)
        codes = [attempt.wait(f"trainer-{index}", 1) for index in range(2)]
        assert codes == [0, 0], attempt.log("trainer-0") + attempt.log("trainer-1")
        assert error_of(np.load(attempt.output / "model.npz")) < 0.6
        assert {key for index in range(2) for _t, _s, key, _v in attempt.replicas[f"trainer-{index}"].points} == {
            "cost"
        }
    finally:
        attempt.close()


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (75, 75), (3, 1)])
def test_the_exit_code_reflects_how_the_program_ended(tmp_path, statistics, code, expected):
    command = [sys.executable, "-m", "runtime.gateway", "--", "sh", "-c", f"exit {code}"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path, statistics, 1), timeout=30, check=False)
    assert ended.returncode == expected


ROWS = """
set -eu
api() { curl --silent --show-error --fail "$@"; }
api -d '{"params": {"w": {"shape": [1]}}, "opt": {"name": "SGD", "lr": 1.0}}' "$REGATTA_GATEWAY/v1/params" > /dev/null
api -d '{"name": "words", "dim": 2, "init": {"name": "Zeros", "scale": 0}}' "$REGATTA_GATEWAY/v1/tables" > /dev/null
printf '7,1,2\\n40,3,4\\n' | api --data-binary @- "$REGATTA_GATEWAY/v1/tables/words/push?dtype=csv" > /dev/null
echo 1 | api --data-binary @- "$REGATTA_GATEWAY/v1/params/w?op=push_pull&dtype=csv" > w.csv
echo 40 7 8 | api --data-binary @- "$REGATTA_GATEWAY/v1/tables/words/pull?dtype=csv" > rows.csv
"""


def test_a_shell_script_trains_rows_of_a_table(tmp_path, statistics):
    command = [sys.executable, "-m", "runtime.gateway", "--", "sh", "-c", ROWS]
    ended = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path, statistics, 1), timeout=60, check=False)
    assert ended.returncode == 0
    assert (tmp_path / "w.csv").read_text() == "-1.0\n"
    assert (tmp_path / "rows.csv").read_text() == "-3.0,-4.0\n-1.0,-2.0\n0.0,0.0\n"


def test_a_program_that_is_asked_to_end_gets_503_and_is_started_again(tmp_path, statistics):
    script = (
        'trap "curl -s -o /dev/null -D headers $REGATTA_GATEWAY/v1/task; exit 0" TERM; '
        "curl -s -o task $REGATTA_GATEWAY/v1/task; touch begun; while :; do sleep 0.05; done"
    )
    command = [sys.executable, "-m", "runtime.gateway", "--", "sh", "-c", script]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path, statistics, 1))
    until("a task is begun", (tmp_path / "begun").exists)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == contract.EXIT_RESTART
    headers = (tmp_path / "headers").read_text()
    assert " 503 " in headers
    assert "Retry-After: " in headers
