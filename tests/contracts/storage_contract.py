"""Contract of every storage."""

from __future__ import annotations

import hashlib
import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from datasets import messages
from datasets.storage.base import BadKey, KeyNotFound, Stat, Storage, StorageError
from tests.messages import pattern


class BrokenStream(io.RawIOBase):
    """Stream that returns some bytes and then fails, like a connection that breaks in the middle."""

    def __init__(self) -> None:
        self.given = False

    def read(self, size: int = -1) -> bytes:
        if self.given:
            raise ConnectionResetError("cut")
        self.given = True
        return b"half"


class StorageContract:
    """Derive from it, and provide the fixture ``storage``: an empty storage."""

    storage: Any

    @staticmethod
    def put(storage: Storage, key: str, content: bytes) -> Stat:
        return storage.put(key, io.BytesIO(content))

    @staticmethod
    def read(storage: Storage, key: str, offset: int = 0) -> bytes:
        with storage.open(key, offset) as file:
            return file.read()

    def test_put_content_is_read_back(self, storage: Storage) -> None:
        self.put(storage, "a/b.bin", b"\x00\xff" * 9)
        assert self.read(storage, "a/b.bin") == b"\x00\xff" * 9

    def test_put_returns_size_and_hash(self, storage: Storage) -> None:
        assert self.put(storage, "a", b"abc") == Stat("a", 3, hashlib.sha256(b"abc").hexdigest())

    def test_stat_returns_what_put_returned(self, storage: Storage) -> None:
        assert self.put(storage, "a", b"abc") == storage.stat("a")

    def test_an_empty_file_is_a_file(self, storage: Storage) -> None:
        assert self.put(storage, "empty", b"").size == 0
        assert self.read(storage, "empty") == b""

    def test_put_replaces_what_was_there(self, storage: Storage) -> None:
        self.put(storage, "a", b"long content")
        self.put(storage, "a", b"new")
        assert self.read(storage, "a") == b"new"
        assert storage.stat("a").sha256 == hashlib.sha256(b"new").hexdigest()

    def test_a_reader_of_the_old_content_keeps_reading_it(self, storage: Storage) -> None:
        self.put(storage, "a", b"old")
        with storage.open("a") as reader:
            self.put(storage, "a", b"new")
            assert reader.read() == b"old"

    def test_a_failed_put_changes_nothing(self, storage: Storage) -> None:
        self.put(storage, "a", b"old")
        with pytest.raises((ConnectionResetError, StorageError)):
            storage.put("a", BrokenStream())  # type: ignore[arg-type]
        assert self.read(storage, "a") == b"old"
        assert [stat.key for stat in storage.list()] == ["a"]

    @pytest.mark.parametrize(("offset", "rest"), [(0, b"hello"), (3, b"lo"), (5, b""), (99, b"")])
    def test_open_starts_at_the_offset(self, storage: Storage, offset: int, rest: bytes) -> None:
        self.put(storage, "a", b"hello")
        assert self.read(storage, "a", offset) == rest

    def test_list_is_by_key_and_below_the_prefix_only(self, storage: Storage) -> None:
        for key in ("jobs/2/log", "jobs/1/log", "jobs-old/1", "other"):
            self.put(storage, key, b"x")
        assert [stat.key for stat in storage.list("jobs")] == ["jobs/1/log", "jobs/2/log"]
        assert [stat.key for stat in storage.list()] == ["jobs-old/1", "jobs/1/log", "jobs/2/log", "other"]

    def test_listing_an_empty_prefix_is_empty(self, storage: Storage) -> None:
        assert list(storage.list("nowhere")) == []

    def test_a_deleted_key_is_gone(self, storage: Storage) -> None:
        self.put(storage, "a", b"x")
        storage.delete("a")
        with pytest.raises(KeyNotFound, match="'a'"):
            storage.stat("a")

    def test_delete_may_come_twice(self, storage: Storage) -> None:
        storage.delete("never/there")

    def test_opening_a_missing_key_is_an_error(self, storage: Storage) -> None:
        with pytest.raises(KeyNotFound, match=pattern(messages.STORAGE_KEY_NOT_FOUND, key="'a/b'")):
            storage.open("a/b")

    def test_a_directory_is_not_a_file(self, storage: Storage) -> None:
        self.put(storage, "a/b", b"x")
        with pytest.raises(KeyNotFound):
            storage.open("a")

    @pytest.mark.parametrize(
        "key", ["", "/", "/etc/passwd", "..", "a/../../b", "a/..", ".sums/a", "a\\b", "a\x00b", "x" * 301]
    )
    def test_a_bad_key_is_refused(self, storage: Storage, key: str) -> None:
        for call in (storage.stat, storage.open, storage.delete, lambda key: self.put(storage, key, b"x")):
            with pytest.raises(BadKey, match="cannot be a key"):
                call(key)

    def test_one_key_has_one_spelling(self, storage: Storage) -> None:
        self.put(storage, "a//./b", b"x")
        assert storage.stat("a/b").key == "a/b"

    def test_a_local_file_is_taken_over(self, storage: Storage) -> None:
        path = self.staged(storage, b"grown")
        digest = hashlib.sha256(b"grown").hexdigest()
        assert storage.adopt("a/b", path, digest) == Stat("a/b", 5, digest) == storage.stat("a/b")
        assert self.read(storage, "a/b") == b"grown" and not path.exists()

    def test_taking_over_is_idempotent(self, storage: Storage) -> None:
        path, digest = self.staged(storage, b"grown"), hashlib.sha256(b"grown").hexdigest()
        assert storage.adopt("a", path, digest) == storage.adopt("a", path, digest)

    def test_existing_content_stays_when_another_file_is_taken_over(self, storage: Storage) -> None:
        self.put(storage, "a", b"first")
        path = self.staged(storage, b"other")
        storage.adopt("a", path, hashlib.sha256(b"other").hexdigest())
        assert self.read(storage, "a") == b"first" and not path.exists()

    def test_taking_over_a_missing_file_is_an_error(self, storage: Storage) -> None:
        with pytest.raises(KeyNotFound):
            storage.adopt("a", storage.staging() / "nothing", "0" * 64)

    def test_laid_out_content_can_be_read_on_this_machine(self, storage: Storage) -> None:
        self.put(storage, "a/b", b"content")
        path = storage.shelf() / "mine.csv"
        storage.place("a/b", path)
        assert path.read_bytes() == b"content"

    def test_laid_out_content_is_independent_of_its_key(self, storage: Storage) -> None:
        self.put(storage, "a", b"content")
        one, other = storage.shelf() / "one", storage.shelf() / "other"
        storage.place("a", one)
        storage.place("a", other)
        one.unlink()
        assert self.read(storage, "a") == b"content"
        storage.delete("a")
        assert other.read_bytes() == b"content"

    def test_a_missing_key_cannot_be_laid_out(self, storage: Storage) -> None:
        with pytest.raises(KeyNotFound):
            storage.place("a", storage.shelf() / "a")

    def test_staging_and_shelf_are_not_listed(self, storage: Storage) -> None:
        self.staged(storage, b"x")
        (storage.shelf() / "y").write_bytes(b"y")
        assert list(storage.list()) == []

    @staticmethod
    def staged(storage: Storage, content: bytes) -> Path:
        path = storage.staging() / "growing"
        path.write_bytes(content)
        return path

    def test_a_signed_url_is_an_address_or_none(self, storage: Storage) -> None:
        self.put(storage, "a", b"x")
        url = storage.signed_url("a", timedelta(minutes=5))
        assert url is None or url.startswith(("http://", "https://"))
