"""Splitting of bytes into lines."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from runtime import contract
from runtime.agent.line_splitter import LineSplitter, line_entries
from runtime.log_lines import Cap

pieces = st.lists(st.binary(max_size=40).map(lambda piece: piece.replace(b"\r", b"")), max_size=20)


def lines_of(*chunks: bytes) -> list[str]:
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.feed(chunk, 0.0)] + splitter.end()


@given(pieces)
def test_how_the_bytes_are_cut_into_chunks_does_not_matter(chunks: list[bytes]) -> None:
    assert lines_of(*chunks) == lines_of(b"".join(chunks))


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=1))
def test_lines_of_text_come_out_as_they_went_in(texts: list[str]) -> None:
    assert lines_of(*(text.encode() + b"\n" for text in texts)) == texts


def test_a_character_that_is_cut_between_two_chunks_stays_whole() -> None:
    assert lines_of(b"caf\xc3", b"\xa9\n") == ["café"]


def test_a_long_line_is_cut_and_shows_its_length() -> None:
    extra = contract.LINE_LIMIT + 5
    shown = "x" * contract.LINE_LIMIT + f" … [cut: this line had {extra:,} bytes]"
    assert lines_of(b"x" * extra + b"\nnext\n") == [shown, "next"]
    assert lines_of(*[b"x"] * extra, b"\nnext\n") == [shown, "next"]


def test_a_line_of_bytes_that_are_no_text_is_no_longer_than_another() -> None:
    (line,) = lines_of(b"\xff" * contract.LINE_LIMIT + b"\n")
    assert line.endswith(f" … [cut: this line had {contract.LINE_LIMIT:,} bytes]")
    assert len(line) < contract.LINE_LIMIT + 100


def test_a_line_that_redraws_itself_shows_its_last_state() -> None:
    assert lines_of(b"10%\r20%\r", b"30%\rdone\n") == ["done"]
    assert lines_of(b"10%\r20%\r\n") == ["20%"]


def test_a_windows_line_break_is_a_line_break() -> None:
    assert lines_of(b"one\r\ntwo\r", b"\n") == ["one", "two"]


def test_a_prompt_is_shown_after_a_second() -> None:
    splitter = LineSplitter()
    splitter.feed(b"Password: ", 10.0)
    assert splitter.due(10.9) == []
    assert splitter.due(11.0) == ["Password: "]
    assert splitter.due(12.0) == []


def test_a_progress_bar_is_shown_every_ten_seconds() -> None:
    splitter = LineSplitter()
    for second in range(11):
        splitter.feed(f"{second}%\r".encode(), float(second))
    assert splitter.due(9.0) == []
    assert splitter.due(10.0) == ["10%"]


@given(st.lists(st.lists(st.text(max_size=8), max_size=5), max_size=8), st.integers(0, 60))
def test_lines_kept_below_the_cap_are_a_prefix_without_holes(batches: list[list[str]], limit: int) -> None:
    cap = Cap(limit)
    kept = [line for batch in batches for line in cap.admit(batch)[0]]
    everything = [line for batch in batches for line in batch]
    assert kept == everything[: len(kept)]
    assert cap.dropped == len(everything) - len(kept)
    assert sum(len(line.encode()) + 1 for line in kept) <= limit


def test_reaching_the_cap_is_reported_once_and_counted_at_the_end() -> None:
    cap = Cap(2**20)
    assert cap.admit(["x" * 2**20, "y"])[1] == ["log cap of 1 MiB reached; the rest is not kept"]
    assert cap.admit(["z"])[1] == []
    assert cap.closing_lines() == ["3 lines beyond the log cap of 1 MiB were not kept"]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_an_entry_is_one_json_text_on_one_line(text: str) -> None:
    (entry,) = line_entries(1.5, "stdout", [text])
    assert json.loads(entry) == [1.5, "stdout", text]
    assert b"\n" not in entry.encode()
