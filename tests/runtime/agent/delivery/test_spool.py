"""Numbering and storage of entries."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import contract
from runtime.agent.delivery.spool import Cursor, Spool


def spool_at(path: Path) -> Spool:
    return Spool(path, lambda: None)


def drain(spool: Spool) -> list[tuple[int, bytes]]:
    """Return everything that is not yet sent, with its numbers, and mark it as accepted."""
    found: list[tuple[int, bytes]] = []
    while spool.due(0.0) is not None:
        batch = spool.batch()
        assert batch.entries, "what is due has entries"
        found += enumerate(batch.entries, batch.first)
        spool.taken(batch.after)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spool")


@given(st.lists(st.lists(st.text(max_size=30).map(json.dumps), max_size=5)), st.integers(0, 50))
def test_entries_are_numbered_from_one_and_can_be_sent_again_from_anywhere(
    folder: Path, batches: list[list[str]], last: int
) -> None:
    (folder / "again").unlink(missing_ok=True)
    spool = spool_at(folder / "again")
    for batch in batches:
        spool.append(batch)
    numbered = list(enumerate((entry.encode() for batch in batches for entry in batch), 1))
    assert drain(spool) == numbered
    spool.go_to(last)
    assert drain(spool) == numbered[last:]


@given(st.lists(st.text(max_size=30).map(json.dumps), max_size=8), st.integers(0, 40), st.integers(0, 8))
def test_a_restarted_replica_continues_after_the_portal_s_last_entry(
    folder: Path, entries: list[str], cut: int, taken: int
) -> None:
    (folder / "starts").write_text("".join(f"{entry}\n" for entry in entries))
    whole = (folder / "starts").read_bytes()[: -cut or None]
    (folder / "starts").write_bytes(whole)
    recovered = whole.split(b"\n")[:-1]
    spool = spool_at(folder / "starts")
    assert drain(spool) == list(enumerate(recovered, 1))[-1:], "the last entry asks where the portal is"
    spool.go_to(min(taken, len(recovered)))
    spool.append(['"new"'])
    assert drain(spool) == list(enumerate([*recovered, b'"new"'], 1))[min(taken, len(recovered)) :]


def test_an_entry_larger_than_a_batch_goes_whole(tmp_path: Path) -> None:
    spool = spool_at(tmp_path / "large")
    large = json.dumps("x" * contract.BATCH_BYTES * 9)
    spool.append(["1", large, "2"])
    assert drain(spool) == [(1, b"1"), (2, large.encode()), (3, b"2")]


def test_a_batch_is_due_when_it_is_old_enough_or_big_enough(tmp_path: Path) -> None:
    spool = spool_at(tmp_path / "due")
    assert spool.due(0.0) is None
    spool.append(["1"])
    assert (spool.due(0.0) or 0) >= contract.BATCH_SECONDS
    assert spool.due(float("inf")) == 0.0
    spool.append([json.dumps("x" * contract.BATCH_BYTES)])
    assert spool.due(0.0) == 0.0


def test_going_back_further_than_anything_was_kept_stops_at_the_end(tmp_path: Path) -> None:
    spool = spool_at(tmp_path / "end")
    spool.append(["1", "2"])
    spool.go_to(99)
    assert spool.sent == Cursor(2, 4)
    assert spool.due(0.0) is None


def test_the_sender_is_woken_by_the_first_entry_and_by_a_full_batch_only(tmp_path: Path) -> None:
    calls: list[None] = []
    spool = Spool(tmp_path / "wake", lambda: calls.append(None))
    for _ in range(100):
        spool.append(["1"])
    assert len(calls) == 1
    spool.append([json.dumps("x" * contract.BATCH_BYTES)])
    spool.append(["1"])
    assert len(calls) == 2


def test_a_full_disk_leaves_no_half_entries(tmp_path: Path) -> None:
    spool = spool_at(tmp_path / "full")
    spool.append(["1"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            spool.append([json.dumps("x" * 5000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    spool.append(["2"])
    assert drain(spool) == [(1, b"1"), (2, b"2")]


def test_entries_that_are_in_no_file_any_more_count(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "logs.spool", lambda: None, before=10)
    spool.append(["1", "2"])
    assert drain(spool) == [(11, b"1"), (12, b"2")]
    spool.go_to(11)
    assert drain(spool) == [(12, b"2")]
    assert drain(Spool(tmp_path / "logs.spool", lambda: None, before=10)) == [(12, b"2")]


def test_a_spool_that_became_shorter_cannot_be_read(folder: Path) -> None:
    spool = spool_at(folder / "shorter")
    spool.append(['"one"', '"two"'])
    os.truncate(folder / "shorter", 3)
    with pytest.raises(OSError, match="shorter than it was"):
        spool.batch()
