"""A history is read while it is written, and after its writer was killed."""

from __future__ import annotations

from pathlib import Path

from tests.faults.recording.history import Reader, Recorder


def test_what_is_written_later_is_read_later_and_nothing_twice(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    one, other = Recorder(tmp_path, "trainer-0.1"), Recorder(tmp_path, "trainer-1.1")
    one.note("got", task=1)
    assert [event["task"] for event in reader.events()] == [1]
    other.note("got", task=2)
    one.note("finished", task=1)
    found = [(event.source, event.kind, event["task"]) for event in reader.events()]
    assert found == [("trainer-0.1", "got", 1), ("trainer-1.1", "got", 2), ("trainer-0.1", "finished", 1)]


def test_half_a_line_is_not_read_before_its_end_comes(tmp_path: Path) -> None:
    reader, file = Reader(tmp_path), tmp_path / "pserver-0.1.jsonl"
    file.write_text('{"at": 1.0, "kind": "applied"}\n{"at": 2.0, "ki')
    assert len(reader.events()) == 1
    file.write_text('{"at": 1.0, "kind": "applied"}\n{"at": 2.0, "kind": "applied"}\n')
    assert len(reader.events()) == 2
