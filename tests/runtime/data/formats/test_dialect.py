"""Dialects of CSV files: separators, comments, names, decimal commas. Read as intended, or refused with the cause."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from runtime.data.errors import FormatError
from runtime.data.span import CHUNK_BYTES
from runtime.messages import data as messages
from tests.messages import pattern
from tests.runtime.data.formats.makers import chunks, read


@pytest.mark.parametrize(
    ("text", "records"),
    [
        # separators
        ("a;b\n1;2\n", [{"a": "1", "b": "2"}]),
        ("a\tb\n1\t2\n", [{"a": "1", "b": "2"}]),
        ("a|b\n1|2\n", [{"a": "1", "b": "2"}]),
        ("a,b\nx;y,z;w\n", [{"a": "x;y", "b": "z;w"}]),
        ('a;b\n"1;x";2\n', [{"a": "1;x", "b": "2"}]),
        ("text\nhello; world\nand on\n", [{"text": "hello; world"}, {"text": "and on"}]),
        # decimal commas
        ("a;b\n1,5;x\n-,25;y,z\n", [{"a": "1.5", "b": "x"}, {"a": "-.25", "b": "y,z"}]),
        ("1,5;2,5\n3;4,5e3\n", [("1.5", "2.5"), ("3", "4.5e3")]),
        ('a,b\n"1,234",x\n', [{"a": "1,234", "b": "x"}]),
        ("a\tb\n1,234\tx\n", [{"a": "1,234", "b": "x"}]),
        # comments
        ("# made by ada, 2026\nx,y\n1,2\n", [{"x": "1", "y": "2"}]),
        ("# x,y\n1.0,2.0\n", [{"x": "1.0", "y": "2.0"}]),
        ("#id,name\n1,b\n", [{"id": "1", "name": "b"}]),
        ("#id,name\na,b\n", [{"id": "a", "name": "b"}]),
        ("\ufeff\r\n# first\r\n\r\n# second\r\nx;y\r\n1;2\r\n", [{"x": "1", "y": "2"}]),
        ("a\n#1\n", [{"a": "#1"}]),
        # names
        ("a,a\n1,2\n", [{"a": "1", "a.1": "2"}]),
        ("a,a.1,a\n1,2,3\n", [{"a": "1", "a.1": "2", "a.2": "3"}]),
        (",a\n0,1.5\n", [{"column 1": "0", "a": "1.5"}]),
        ("yes,no,yes\nno,no,yes\n", [("yes", "no", "yes"), ("no", "no", "yes")]),
        ("1;2\n3;4\n", [("1", "2"), ("3", "4")]),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [1, CHUNK_BYTES])
def test_a_file_is_read_as_it_is_meant(text: str, records: list[Any], chunk_bytes: int, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes(text.encode())
    assert read(tmp_path / "data.csv", "csv", chunk_bytes) == records


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "a;b;c\n1,5;2\n3;4\n1;2\n",
            pattern(messages.CSV_CELL_COUNT_MISMATCH_SEPARATOR),
        ),
        ("a;b\n1;2\n3\n", f"record 1{pattern(messages.CSV_CELL_COUNT_MISMATCH, count=1, expected=2)}"),
        ("a,b\n1,2\n3,4,5\n", f"record 1{pattern(messages.CSV_CELL_COUNT_MISMATCH, count=3, expected=2)}"),
    ],
)
def test_a_file_that_is_not_sure_to_be_read_as_meant_is_refused_by_the_index(
    text: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "data.csv").write_text(text)
    with pytest.raises(FormatError, match=why):
        chunks(tmp_path / "data.csv")


def test_rows_beyond_the_sample_do_not_change_how_a_file_is_read(tmp_path: Path) -> None:
    """A chunk is read as the index read it, though its own rows would suggest another dialect."""
    rows = ["a;b"] + ["1;2"] * 300_000 + ["1,5;x,y"]
    (tmp_path / "data.csv").write_text("\n".join(rows))
    records = read(tmp_path / "data.csv", "csv", 1 << 19)
    assert (len(records), records[-1]) == (300_001, {"a": "1,5", "b": "x,y"})


def test_the_limit_that_a_script_sets_for_its_own_cells_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(f"a;b\n{'x' * 1000};2\n")
    expected = read(tmp_path / "data.csv")
    before = csv.field_size_limit(10)
    try:
        assert read(tmp_path / "data.csv") == expected == [{"a": "x" * 1000, "b": "2"}]
        assert csv.field_size_limit() == 10
    finally:
        csv.field_size_limit(before)
