"""Records that scripts cannot process: with real processes, and with each ``on_bad_record`` if decoding fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime import contract, coordination, dist
from runtime.errors import RegattaError, UsageError
from runtime.messages import training as messages
from runtime.trainer.tasks.task_client import JobFailed
from tests.faults import datasets
from tests.messages import mentions
from tests.runtime.trainer.attempt import Attempt
from tests.waiting import until

BAD = 100
SCRIPT = """
import os, signal
from runtime import dist

job = dist.init()
bad = job.load(split="train")[0][{bad}]
for x, y in job.steps(job.reader()):
    if (x == bad).all():
        {die}
"""
DEATHS = {
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
    "raise": "raise ValueError('this one is too much')",
}


def keep_alive(attempt: Attempt, trainers: int, seconds: float) -> int:
    """Restart killed trainers until the master has ended; return how often."""
    restarts = 0

    def has_ended() -> bool:
        nonlocal restarts
        for index in range(trainers):
            if attempt.replicas[f"trainer-{index}"].process.poll():
                attempt.start(contract.TRAINER, index)
                restarts += 1
        return attempt.replicas["master-0"].process.poll() is not None

    until("the master has ended", has_ended, seconds, every=0.02)
    return restarts


@pytest.mark.processes
@pytest.mark.parametrize(("death", "most"), [("kill", 9), ("raise", 4)])
def test_a_record_that_ends_every_trainer_is_left_out_and_the_job_goes_on(tmp_path: Path, death: str, most: int):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(bad=BAD, die=DEATHS[death]))
    variables = {contract.DATASET: "public/diabetes", contract.PASSES: "2", contract.TRAINERS: "2"}
    attempt = Attempt(tmp_path / "attempt", script, **{contract.MODE: "async", contract.PSERVERS: "0", **variables})
    try:
        attempt.start(contract.MASTER, 0)
        for index in range(2):
            attempt.start(contract.TRAINER, index)
        assert 2 <= keep_alive(attempt, 2, 60.0) <= most
        assert attempt.wait("master-0", 0.0) == contract.EXIT_OK
        assert f"record {BAD} (train" in attempt.log("master-0") and mentions(
            attempt.log("master-0"), messages.ALL_PASSES_DONE_EXCEPT
        )
        store = coordination.connect(f"sqlite:///{tmp_path}/attempt/coordination.db")
        assert f"record {BAD} ".encode() in store.get("/regatta/job/1/master/quarantine").value
        store.close()
    finally:
        attempt.close()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dist.Job:
    monkeypatch.setattr(dist, "_job", None)
    monkeypatch.setattr("sys.excepthook", lambda *error: None)
    monkeypatch.delenv("REGATTA_AGENT_FD", raising=False)
    monkeypatch.chdir(tmp_path)
    return dist.init()


class Picky:
    """Decodes labels, except for one record."""

    def __init__(self, job: dist.Job) -> None:
        self.labels = [float(label) for label in job.load("public/diabetes", "train")[1]]
        self.bad = job.load("public/diabetes", "train")[0][BAD]

    def __call__(self, record: tuple) -> float:
        if (record[0] == self.bad).all():
            raise ValueError("this one is too much")
        return float(record[1])


def test_a_record_that_cannot_be_decoded_is_left_out_after_a_search(job):
    picky = Picky(job)
    seen = list(job.steps(job.reader("public/diabetes", decode=picky), passes=2))
    good = sorted(picky.labels[:BAD] + picky.labels[BAD + 1 :])
    assert sorted(seen[-len(good) :]) == good


def test_a_record_that_cannot_be_decoded_is_skipped_if_configured(job, capfd):
    picky = Picky(job)
    seen = list(job.steps(job.reader("public/diabetes", decode=picky, on_bad_record="skip"), passes=1))
    assert sorted(seen) == sorted(picky.labels[:BAD] + picky.labels[BAD + 1 :])
    assert "cannot be decoded (ValueError: this one is too much)" in capfd.readouterr().err


def test_a_record_that_cannot_be_decoded_raises_if_configured(job):
    with pytest.raises(ValueError, match="too much"):
        list(job.steps(job.reader("public/diabetes", decode=Picky(job), on_bad_record="raise"), passes=1))


@pytest.fixture
def changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dist.Job, Path]]:
    """A job that runs alone, on a dataset whose file may be removed: ten tasks of one record."""
    file = datasets.make(tmp_path / "data", 10)
    monkeypatch.setattr(dist, "_job", None)
    monkeypatch.setattr("sys.excepthook", lambda *error: None)
    monkeypatch.setenv(contract.DATA_PATH, str(tmp_path / "data"))
    yield dist.init(), file


def test_a_file_that_goes_away_in_mid_run_ends_the_job_with_its_name(changing):
    job, file = changing
    seen = []
    with pytest.raises(
        JobFailed, match=rf"{file.name} cannot be read \(No such file or directory\)\. Restore the file"
    ):
        for features, _label in job.steps(job.reader(datasets.NAME), passes=1):
            seen.append(features[0])
            if len(seen) == 4:
                file.unlink()
    assert len(seen) == 4


def test_a_file_truncated_in_mid_run_is_skipped_if_configured(changing):
    job, file = changing
    seen = []
    for features, _label in job.steps(job.reader(datasets.NAME, on_bad_record="skip"), passes=1):
        seen.append(features[0])
        if len(seen) == 4:
            os.truncate(file, file.stat().st_size * 6 // 10)
    assert seen == [0, 1, 2, 3, 4, 5]


def test_a_missing_file_raises_if_configured(changing):
    job, file = changing
    file.unlink()
    with pytest.raises(RegattaError, match=f"{file.name} cannot be read"):
        list(job.steps(job.reader(datasets.NAME, on_bad_record="raise"), passes=1))


def test_an_unknown_way_with_bad_records_is_refused(job):
    with pytest.raises(UsageError, match="on_bad_record is one of fail-task, skip, raise, not 'ignore'"):
        job.reader("public/diabetes", on_bad_record="ignore")
