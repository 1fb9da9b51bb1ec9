"""Recorded outputs in the contents of a notebook."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runtime.notebook import merge
from runtime.notebook.cell_record import CellRecord

STREAM = {"output_type": "stream", "name": "stdout", "text": "recorded"}


def _record(cell: str, first: int = 1, *, ended: bool = True) -> CellRecord:
    about = {"cell": cell, "execution": f"e-{cell}"}
    record = CellRecord({**about, "session": "s", "direct": False, "source": f"code of {cell}"}, first)
    record.apply({**about, "op": "count", "count": 7}, first + 1)
    record.apply({**about, "op": "append", "output": STREAM}, first + 2)
    if ended:
        record.apply({**about, "op": "end"}, first + 3)
    return record


def _cell(name: str, outputs: list[Any] | None = None, count: int | None = None) -> dict[str, Any]:
    about = {"id": name, "cell_type": "code", "source": "x", "metadata": {}}
    return {**about, "outputs": outputs or [], "execution_count": count}


def _notebook(*cells: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {}, "cells": list(cells)}


def _outputs(record: CellRecord) -> list[Any]:
    return record.stored.outputs()


def test_recorded_outputs_replace_those_of_the_file() -> None:
    notebook = _notebook(_cell("a", [{"output_type": "stream", "name": "stdout", "text": "old"}], 1), _cell("b"))
    merge.merge(notebook, [_record("a")], _outputs)
    assert (notebook["cells"][0]["outputs"], notebook["cells"][0]["execution_count"]) == ([STREAM], 7)
    assert notebook["cells"][1] == _cell("b")


def test_a_text_cell_gets_no_outputs() -> None:
    text = {"id": "a", "cell_type": "markdown", "source": "x", "metadata": {}}
    notebook = _notebook(dict(text))
    merge.merge(notebook, [_record("a")], _outputs)
    assert notebook["cells"] == [text]


def test_an_executed_cell_that_nobody_saved_is_added_with_its_code() -> None:
    notebook = _notebook(_cell("a"))
    merge.add_missing(notebook, [_record("new")])
    assert [cell["id"] for cell in notebook["cells"]] == ["a", "new"]
    assert notebook["cells"][1]["source"] == "code of new"


def test_a_page_that_has_seen_the_end_can_clear_a_cell() -> None:
    assert merge.cleared(_notebook(_cell("a")), [_record("a")], cursor=4) == ["a"]


def test_a_page_that_has_not_seen_the_end_clears_nothing() -> None:
    assert merge.cleared(_notebook(_cell("a")), [_record("a")], cursor=3) == []


def test_a_page_that_has_seen_the_execution_can_delete_the_cell() -> None:
    assert merge.cleared(_notebook(), [_record("a", ended=False)], cursor=1) == ["a"]
    assert merge.cleared(_notebook(), [_record("a", first=5)], cursor=4) == []


@given(st.lists(st.sampled_from("abcd"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_merging_loses_no_cell_and_no_recorded_output(cells: list[str], recorded: list[str]) -> None:
    notebook = _notebook(*map(_cell, cells))
    records = [_record(name) for name in recorded]
    merge.add_missing(notebook, records)
    merge.merge(notebook, records, _outputs)
    found = {cell["id"]: cell["outputs"] for cell in notebook["cells"]}
    assert len(notebook["cells"]) == len(found)
    assert found == {name: [STREAM] if name in recorded else [] for name in {*cells, *recorded}}


@given(st.lists(st.sampled_from("abcd"), unique=True))
def test_merging_twice_is_merging_once(recorded: list[str]) -> None:
    records = [_record(name) for name in recorded]
    once = _notebook(_cell("a"), _cell("b"))
    merge.add_missing(once, records)
    merge.merge(once, records, _outputs)
    twice = _notebook(*(dict(cell) for cell in once["cells"]))
    merge.add_missing(twice, records)
    merge.merge(twice, records, _outputs)
    assert twice == once


def test_outputs_do_not_change_the_digest_and_sources_do() -> None:
    before = merge.digest(_notebook(_cell("a")))
    assert merge.digest(_notebook(_cell("a", [STREAM], 3))) == before
    assert merge.digest(_notebook({**_cell("a"), "source": "y"})) != before


def test_a_cursor_of_another_log_is_none() -> None:
    notebook = _notebook()
    merge.put_cursor(notebook, "log", 5, [_record("a", ended=False)])
    assert notebook["metadata"]["regatta"]["running"] == ["a"]
    assert merge.take_cursor(notebook, "other") == 0
    assert notebook["metadata"] == {}
