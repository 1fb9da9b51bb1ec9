"""Outputs of one cell: operations, and the limit."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runtime.notebook.cell_outputs import CellOutputs, readable, size_of


def _append(output: dict[str, Any]) -> dict[str, Any]:
    return {"op": "append", "cell": "c", "execution": "e", "output": output}


def _stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def _display(text: str) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {"text/plain": text}, "metadata": {}}


END = {"op": "end", "cell": "c", "execution": "e"}
ERROR = {"output_type": "error", "ename": "E", "evalue": "", "traceback": ["at line 1"]}
TEXTS = st.text(alphabet="ab\n", max_size=30)
OPERATIONS = st.lists(
    st.one_of(
        st.builds(lambda text, name: _append(_stream(text, name)), TEXTS, st.sampled_from(["stdout", "stderr"])),
        st.builds(lambda text: _append(_display(text)), TEXTS),
        st.builds(
            lambda index, text: {"op": "set", "cell": "c", "execution": "e", "index": index, "output": _display(text)},
            st.integers(0, 4),
            TEXTS,
        ),
        st.just({"op": "clear", "cell": "c", "execution": "e"}),
        st.just(END),
    ),
    max_size=20,
)


@given(OPERATIONS, st.integers(1, 400))
def test_what_a_page_is_sent_leads_to_the_same_outputs_without_a_limit(
    operations: list[dict[str, Any]], limit: int
) -> None:
    limited, page = CellOutputs(limit), CellOutputs(10**9)
    for operation in operations:
        for sent in limited.apply(operation):
            page.apply(sent)
    assert page.outputs() == limited.outputs()


@given(OPERATIONS, st.integers(1, 400))
def test_outputs_stay_within_the_limit(operations: list[dict[str, Any]], limit: int) -> None:
    outputs = CellOutputs(limit)
    for operation in operations:
        outputs.apply(operation)
    made = outputs.outputs()
    assert sum(size_of(one) for one in (made[:-1] if outputs.full else made)) <= limit


def test_texts_of_one_stream_are_one_output() -> None:
    outputs = CellOutputs(1000)
    for text in ("a", "b\n", "c"):
        outputs.apply(_append(_stream(text)))
    assert outputs.outputs() == [_stream("ab\nc")]


def test_a_message_says_how_much_was_left_out() -> None:
    outputs = CellOutputs(1000)
    outputs.apply(_append(_stream("x" * 5000)))
    outputs.apply(END)
    begin, note = outputs.outputs()
    assert len(begin["text"]) == 1000 - 16
    assert note["data"]["text/plain"] == "The output of this cell is longer than 1 kB. 4 kB were left out."


def test_an_error_is_stored_beyond_the_limit() -> None:
    outputs = CellOutputs(100)
    outputs.apply(_append(_stream("x" * 500)))
    outputs.apply(_append(ERROR))
    assert outputs.outputs()[-1] == ERROR


def test_cleared_outputs_begin_again_below_the_limit() -> None:
    outputs = CellOutputs(100)
    outputs.apply(_append(_stream("x" * 500)))
    outputs.apply({"op": "clear", "cell": "c", "execution": "e"})
    outputs.apply(_append(_stream("y")))
    assert outputs.outputs() == [_stream("y")]


def test_sizes_are_readable() -> None:
    assert [readable(size) for size in (999, 1_500, 10_000_000, 1_073_741_824)] == [
        "999 bytes",
        "1.5 kB",
        "10 MB",
        "1.1 GB",
    ]
