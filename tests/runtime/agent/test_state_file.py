"""The state file of a replica and the disk space reserved for it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from runtime.agent.state_file import FILE, StateFile
from runtime.contract import ReplicaState


def state_in(directory: Path) -> StateFile:
    return StateFile(directory, ReplicaState(7, 100, "starting", 1.0))


def fail_writes(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next writes of a state find a full disk."""
    write, left = ReplicaState.write, [None] * times

    def full(state: ReplicaState, directory: Path) -> None:
        if left:
            left.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(state, directory)

    monkeypatch.setattr(ReplicaState, "write", full)


def test_the_first_state_is_written_at_once(tmp_path: Path) -> None:
    file = state_in(tmp_path)
    assert ReplicaState.load(tmp_path) == file.state


def test_every_change_is_written(tmp_path: Path) -> None:
    file = state_in(tmp_path)
    file.note(phase="registered", registered=2.0)
    stored = ReplicaState.load(tmp_path)
    assert stored is not None
    assert (stored.phase, stored.registered) == ("registered", 2.0)


def test_a_late_change_of_phase_does_not_replace_the_last_one(tmp_path: Path) -> None:
    file = state_in(tmp_path)
    file.note(phase="exited", code=3)
    file.note(phase="registered", registered=2.0)
    assert (file.state.phase, file.state.registered) == ("exited", 2.0)


def test_a_full_disk_takes_the_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = state_in(tmp_path)
    assert (tmp_path / FILE).exists()
    fail_writes(monkeypatch, 1)
    file.note(phase="exited")
    stored = ReplicaState.load(tmp_path)
    assert stored is not None
    assert stored.phase == "exited"
    assert not (tmp_path / FILE).exists()


def test_a_state_that_cannot_be_written_is_reported_and_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = state_in(tmp_path)
    fail_writes(monkeypatch, 2)
    file.note(phase="exited")
    assert "The state of this replica (exited) cannot be written" in capsys.readouterr().err
    assert file.state.phase == "exited"
