"""Guarantees of a download: correct bytes, synced to disk before they are renamed, and a limit of retries."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from regatta.errors import BadFile, Unreachable
from tests.client.data_portal import PART, DataPortal
from tests.client.test_transfer import client
from tests.recording_disk import RecordingDisk


def holding(content: bytes, portal: DataPortal | None = None) -> DataPortal:
    portal = portal or DataPortal()
    portal.files, portal.state = {"a.bin": content}, "sealed"
    return portal


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RecordingDisk(monkeypatch)
    client(holding(b"content")).datasets.download("ada/mine", tmp_path)
    assert disk.steps == ["sync a.bin.part", "rename a.bin.part a.bin"]


def test_a_file_of_the_right_length_with_other_content_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"CONTENT")
    client(holding(b"content")).datasets.download("ada/mine", tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == b"content"


class StartsOver(DataPortal):
    """Returns the whole file whichever range is requested, as a proxy that ignores ranges, and counts this."""

    asked = 0

    def _content(self, request: httpx.Request, path: str) -> httpx.Response:
        self.asked += 1
        return httpx.Response(200, content=self.files[path])


def test_the_known_part_of_an_answer_that_starts_over_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"con")
    portal = StartsOver()
    client(holding(b"content", portal)).datasets.download("ada/mine", tmp_path)
    assert ((tmp_path / "a.bin").read_bytes(), portal.asked) == (b"content", 1)


def test_the_beginning_of_a_partial_file_that_is_too_long_is_used(tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"content and more")
    portal = StartsOver()
    client(holding(b"content", portal)).datasets.download("ada/mine", tmp_path)
    assert ((tmp_path / "a.bin").read_bytes(), portal.asked) == (b"content", 0)


class Silent(DataPortal):
    """Ends each response before its first byte, and counts them."""

    asked = 0

    def _content(self, request: httpx.Request, path: str) -> httpx.Response:
        self.asked += 1
        assert self.asked < 50, "it is asked for ever"
        raise httpx.ReadError("cut")


def test_a_download_without_progress_ends(tmp_path: Path) -> None:
    portal = holding(b"content", Silent())
    with pytest.raises(Unreachable):
        client(portal).datasets.download("ada/mine", tmp_path)
    assert 1 < portal.asked < 50


class ChangesAtTheEnd(DataPortal):
    """Appends to the file on the disk after its last part was received."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        self.completed = 0

    def _part(self, request: httpx.Request, file: str, part: str) -> httpx.Response:
        answer = super()._part(request, file, part)
        if int(part) == 1:
            self._file.write_bytes(b"y" * 3 * PART)
        return answer

    def _complete(self, request: httpx.Request, file: str) -> httpx.Response:
        self.completed += 1
        return super()._complete(request, file)


def test_a_file_that_changed_after_it_was_read_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"x" * 2 * PART)
    portal = ChangesAtTheEnd(tmp_path / "a.bin")
    with pytest.raises(BadFile, match="changed while"):
        client(portal).datasets.upload("ada/mine", tmp_path / "a.bin")
    assert (portal.completed, portal.state) == (0, "open")
