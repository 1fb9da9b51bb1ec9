"""Staging file of an upload: parts at their offsets, from any sender, at any time and speed."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from datasets.checksums import SHA256, Checksum
from datasets.errors import ChecksumMismatch
from datasets.uploads import staging
from datasets.uploads.staging import Body, Placing
from tests.datasets.conftest import sha

NAME = uuid.uuid4()
OURS, THEIRS, OTHERS = b"0123456789", b"abcdefghij", b"zyxwvutsrq"


class Pieces:
    """Body of some pieces, with a callback before each of them."""

    def __init__(self, *pieces: bytes, before: Sequence[Callable[[], object]] = ()) -> None:
        self._pieces = list(pieces)
        self._before = list(before)

    def read(self, size: int, /) -> bytes:
        if self._before:
            self._before.pop(0)()
        return self._pieces.pop(0) if self._pieces else b""


class Records:
    """Records of the parts of a file, as in the database."""

    def __init__(self) -> None:
        self.parts: dict[int, str] = {}

    def take(self, folder: Path, body: Body, content: bytes, number: int = 0) -> None:
        placing = Placing(
            vacant=lambda: number not in self.parts,
            allow=lambda: self.parts.get(number) != sha(content),
            note=lambda: self.parts.update({number: sha(content)}),
        )
        span = (10 * number, 10)
        staging.take_part(folder, NAME, body, span=span, checksum=Checksum(SHA256, sha(content)), by=placing)


def content(folder: Path) -> bytes:
    return staging.path_of(folder, NAME).read_bytes()


def nothing() -> None: ...


def test_a_part_is_written_to_its_range_while_it_arrives(tmp_path: Path) -> None:
    seen: list[bytes] = []
    body = Pieces(OURS[:4], OURS[4:], before=[nothing, lambda: seen.append(content(tmp_path))])
    Records().take(tmp_path, body, OURS)
    assert (seen, content(tmp_path)) == ([OURS[:4]], OURS)


def test_a_recorded_part_stays_unchanged_while_other_bytes_arrive(tmp_path: Path) -> None:
    records, seen = Records(), list[bytes]()
    records.take(tmp_path, Pieces(OURS), OURS)
    late = Pieces(THEIRS[:4], THEIRS[4:], b"", before=[nothing, nothing, lambda: seen.append(content(tmp_path))])
    records.take(tmp_path, late, THEIRS)
    assert (seen, content(tmp_path)) == ([OURS], THEIRS)


def test_a_part_that_was_damaged_in_transit_is_not_recorded_and_is_replaced(tmp_path: Path) -> None:
    records = Records()
    with pytest.raises(ChecksumMismatch):
        records.take(tmp_path, Pieces(b"0123!56789"), OURS)
    assert records.parts == {}
    records.take(tmp_path, Pieces(OURS), OURS)
    assert content(tmp_path) == OURS


@pytest.mark.invariant("A slow sender of a part delays no other sender.")
def test_a_slow_sender_leaves_its_place_to_a_quick_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records()

    def overtake() -> None:
        records.take(tmp_path, Pieces(OURS), OURS)

    def grow_late() -> None:
        monkeypatch.setattr(staging, "IN_PLACE_SECONDS", -1.0)

    records.take(tmp_path, Pieces(OURS[:3], OURS[3:6], OURS[6:], before=[nothing, grow_late, overtake]), OURS)
    assert content(tmp_path) == OURS


def test_parts_of_a_slow_sender_are_complete_in_either_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def grow_late() -> None:
        monkeypatch.setattr(staging, "IN_PLACE_SECONDS", -1.0)

    Records().take(tmp_path, Pieces(OURS[:3], OURS[3:6], OURS[6:], before=[nothing, grow_late]), OURS)
    assert content(tmp_path) == OURS


@pytest.mark.invariant("Concurrent uploads of one part never mix.")
def test_of_two_who_bring_a_part_at_once_neither_mixes_with_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, failed = Records(), list[BaseException]()
    # set when the other request waits for the range, or has finished with it
    waiting, lock = threading.Event(), staging._lock

    def wait_for_lock(*place: int) -> None:
        waiting.set()
        lock(*place)

    monkeypatch.setattr(staging, "_lock", wait_for_lock)

    def bring_theirs() -> None:
        try:
            records.take(tmp_path, Pieces(THEIRS[:5], THEIRS[5:]), THEIRS)
        except BaseException as error:  # noqa: BLE001  reported below
            failed.append(error)
        finally:
            waiting.set()

    other = threading.Thread(target=bring_theirs)

    def meanwhile() -> None:
        other.start()
        assert waiting.wait(60)

    records.take(tmp_path, Pieces(OURS[:5], OURS[5:], before=[nothing, meanwhile]), OURS)
    other.join(10)
    assert not failed
    assert (content(tmp_path), records.parts) == (THEIRS, {0: sha(THEIRS)})


def test_parts_of_a_file_arrive_concurrently_each_in_its_range(tmp_path: Path) -> None:
    records = Records()
    inner = Pieces(OTHERS[:5], OTHERS[5:])
    body = Pieces(OURS[:5], OURS[5:], before=[nothing, lambda: records.take(tmp_path, inner, OTHERS, number=1)])
    records.take(tmp_path, body, OURS)
    assert content(tmp_path) == OURS + OTHERS


def test_a_part_recorded_before_the_lock_is_received_in_a_temporary_file(tmp_path: Path) -> None:
    """The recorded bytes stay in place until the other bytes are complete and allowed."""
    records, seen, looks = Records(), list[bytes](), list[bool]()

    def vacant() -> bool:
        looks.append(0 not in records.parts)
        if len(looks) == 1:
            records.take(tmp_path, Pieces(OURS), OURS)
        return looks[-1]

    placing = Placing(vacant=vacant, allow=lambda: True, note=lambda: records.parts.update({0: sha(THEIRS)}))
    body = Pieces(THEIRS[:4], THEIRS[4:], before=[nothing, lambda: seen.append(content(tmp_path))])
    staging.take_part(tmp_path, NAME, body, span=(0, 10), checksum=Checksum(SHA256, sha(THEIRS)), by=placing)
    assert (looks, seen, content(tmp_path)) == ([True, False], [OURS], THEIRS)


@pytest.mark.parametrize("system", ["copies", "cannot copy", "copies nothing"])
def test_a_part_that_cannot_be_read_back_completely_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    def cannot(*_: object) -> int:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    if system != "copies":
        monkeypatch.setattr(os, "copy_file_range", cannot if system == "cannot copy" else lambda *_: 0)
    (tmp_path / "short").write_bytes(b"012")
    with (tmp_path / "short").open("rb") as short, (tmp_path / "target").open("wb") as target:
        with pytest.raises(OSError, match="cannot be read back"):
            staging._copy(short.fileno(), 0, target.fileno(), 0, 10)
        staging._copy(short.fileno(), 0, target.fileno(), 0, 3)
    assert (tmp_path / "target").read_bytes() == b"012"
