"""Log of the outputs of one notebook: cursors, and the file."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from runtime.notebook import output_log
from runtime.notebook.output_log import OutputLog, OutputLogs


def _queue(log: OutputLog, cell: str = "c", execution: str = "e") -> None:
    about = {"cell": cell, "execution": execution, "session": "s", "direct": False}
    log.append({**about, "op": "queued", "source": "1"})


def _print(log: OutputLog, text: str, cell: str = "c", execution: str = "e") -> None:
    output = {"output_type": "stream", "name": "stdout", "text": text}
    log.append({"op": "append", "cell": cell, "execution": execution, "output": output})


def _texts(operations: list[str]) -> list[str]:
    found = [json.loads(one) for one in operations]
    return [one["output"]["text"] for one in found if one["op"] == "append"]


def _outputs(log: OutputLog, cell: str = "c") -> list[Any]:
    return log.records[cell].stored.outputs()


def test_a_page_reads_strictly_after_its_cursor(tmp_path: Path) -> None:
    log = OutputLog("a.ipynb", tmp_path / "log")
    _queue(log)
    _print(log, "one")
    cursor, _ = log.read(log.identity, 0)
    _print(log, "two")
    assert _texts(log.read(log.identity, cursor)[1]) == ["two"]
    assert log.read(log.identity, log.cursor) == (log.cursor, [])


def test_a_page_that_is_too_far_behind_gets_the_present_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_log, "_TAIL", 500)
    log = OutputLog("a.ipynb", tmp_path / "log")
    _queue(log)
    for number in range(20):
        _print(log, f"{number},")
    cursor, operations = log.read(log.identity, 1)
    assert (cursor, json.loads(operations[0])["op"]) == (log.cursor, "queued")
    assert _texts(operations) == ["".join(f"{number}," for number in range(20))]


def test_a_page_of_another_log_gets_the_present_state(tmp_path: Path) -> None:
    log = OutputLog("a.ipynb", tmp_path / "log")
    _queue(log)
    _print(log, "one")
    assert _texts(log.read("other", log.cursor)[1]) == ["one"]


def test_an_operation_of_a_replaced_execution_has_no_effect(tmp_path: Path) -> None:
    log = OutputLog("a.ipynb", tmp_path / "log")
    _queue(log, execution="first")
    _queue(log, execution="second")
    _print(log, "late", execution="first")
    assert _outputs(log) == []


def test_a_new_server_has_what_the_former_recorded_and_nothing_runs(tmp_path: Path) -> None:
    log = OutputLog("a.ipynb", tmp_path / "log")
    _queue(log)
    _print(log, "one")
    again = OutputLog("a.ipynb", tmp_path / "log")
    assert _outputs(again) == _outputs(log)
    assert again.records["c"].ended
    assert (again.identity, again.cursor) == (log.identity, log.cursor)


def test_a_line_that_was_not_written_to_its_end_is_left_out(tmp_path: Path) -> None:
    log = OutputLog("a.ipynb", tmp_path / "log")
    _queue(log)
    _print(log, "one")
    with (tmp_path / "log").open("ab") as file:
        file.write(b'{"op": "append", "cell"')
    assert _outputs(OutputLog("a.ipynb", tmp_path / "log")) == _outputs(log)


def test_a_large_file_is_written_anew_with_the_same_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_log, "_LARGEST_FILE", 2000)
    log = OutputLog("a.ipynb", tmp_path / "log")
    _queue(log)
    for number in range(200):
        _print(log, f"\r{number}")
    assert (tmp_path / "log").stat().st_size < 4000
    assert _outputs(OutputLog("a.ipynb", tmp_path / "log")) == _outputs(log)


def test_a_full_disk_loses_nothing_for_the_pages(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = OutputLog("a.ipynb", tmp_path / "file" / "log")
    _queue(log)
    _print(log, "one")
    assert _texts(log.read(log.identity, 0)[1]) == ["one"]


def test_the_log_follows_a_directory_that_is_renamed(tmp_path: Path) -> None:
    logs = OutputLogs(tmp_path)
    log = logs.get("old/a.ipynb")
    _queue(log)
    _print(log, "one")
    logs.move("old", "new")
    assert logs.get("new/a.ipynb") is log
    assert _outputs(OutputLogs(tmp_path).get("new/a.ipynb")) == _outputs(log)
    assert OutputLogs(tmp_path).get("old/a.ipynb").records == {}


def test_a_forgotten_cell_stays_forgotten(tmp_path: Path) -> None:
    log = OutputLog("a.ipynb", tmp_path / "log")
    _queue(log)
    log.forget("c")
    assert OutputLog("a.ipynb", tmp_path / "log").records == {}


def test_a_full_disk_loses_nothing_once_it_has_space_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = OutputLog("a.ipynb", tmp_path / "log")
    _queue(log)
    _print(log, "one,")
    monkeypatch.setattr(output_log, "_RETRY_SECONDS", 0.0)
    with monkeypatch.context() as full:
        full.setattr(log, "_opened", PartOfAWrite)
        full.setattr(log, "_rewrite", _no_space)
        _print(log, "two,")
        _print(log, "three,")
    _print(log, "four")
    log.close()
    assert OutputLog("a.ipynb", tmp_path / "log").records["c"].stored.outputs()[0]["text"] == "one,two,three,four"


def test_a_notebook_opens_while_its_record_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = OutputLog("a.ipynb", tmp_path / "log")
    _queue(log)
    _print(log, "one")
    log.close()
    monkeypatch.setattr(OutputLog, "_rewrite", lambda self: _no_space())
    assert OutputLog("a.ipynb", tmp_path / "log").records["c"].stored.outputs()[0]["text"] == "one"


def test_whether_the_file_has_had_a_cell_outlives_a_restart(tmp_path: Path) -> None:
    log = OutputLog("a.ipynb", tmp_path / "log")
    for cell in ("c", "d"):
        _queue(log, cell)
    log.saved({"c"})
    log.close()
    again = OutputLog("a.ipynb", tmp_path / "log")
    assert {cell: record.in_file for cell, record in again.records.items()} == {"c": True, "d": False}


class PartOfAWrite:
    """A file on a disk that becomes full."""

    def write(self, data: bytes) -> int:
        return len(data) - 1


def _no_space() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
