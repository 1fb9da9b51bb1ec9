"""Selection of the files whose records jobs read, by their detected formats and the dataset's declared format."""

from __future__ import annotations

import pytest

from runtime.data.format_selection import FILES, MESSAGES, MIXED, Chosen, Unread, choose, of_version

PICTURE, PACKED = Unread.UNKNOWN, Unread.PACKED


@pytest.mark.parametrize(
    ("found", "declared", "formats", "whole"),
    [
        ({"a.csv": "csv", "b.csv": "csv"}, "", ["csv", "csv"], "csv"),
        ({"a.csv": "csv", "photo.png": PICTURE}, "", ["csv", ""], "csv"),
        # Text is read if there is nothing else, and is documentation otherwise.
        ({"a.txt": "text", "b.txt": "text"}, "", ["text", "text"], "text"),
        ({"a.csv": "csv", "LICENCE.txt": "text"}, "", ["csv", ""], "csv"),
        ({"a.csv": "csv", "b.parquet": "parquet"}, "", ["csv", "parquet"], MIXED),
        ({"a.csv.gz": PACKED, "photo.png": PICTURE}, "", ["", ""], FILES),
        # Declared: the files that may be of that format, else all.
        ({"a.csv": "csv", "README.md": PICTURE}, "csv", ["csv", ""], "csv"),
        ({"a.dat": PICTURE, "b.dat": PICTURE}, "csv", ["csv", "csv"], "csv"),
        ({"a.recordio": "recordio", "b.csv": "csv"}, "features", ["features", ""], "features"),
        ({"a.txt": "text", "b.csv": "csv"}, "text", ["text", ""], "text"),
        ({"a.csv": "csv"}, FILES, [""], FILES),
        ({}, "csv", [], FILES),
    ],
)
def test_how_files_are_read(found: dict[str, str | Unread], declared: str, formats: list[str], whole: str) -> None:
    chosen = choose(found, declared)
    assert [chosen[path].format for path in found] == formats
    assert of_version(chosen) == whole


@pytest.mark.parametrize(
    ("found", "declared", "why"),
    [
        ({"a": PICTURE, "b.csv": "csv"}, "", Unread.UNKNOWN),
        ({"a": PACKED}, "", Unread.PACKED),
        ({"a": "text", "b.csv": "csv"}, "", Unread.BESIDE),
        ({"a": PICTURE, "b.csv": "csv"}, "csv", Unread.OTHER),
    ],
)
def test_unread_files_have_a_reason(found: dict[str, str | Unread], declared: str, why: Unread) -> None:
    assert choose(found, declared)["a"] == Chosen("", why)


def test_every_reason_has_a_message() -> None:
    assert set(MESSAGES) == set(Unread)
