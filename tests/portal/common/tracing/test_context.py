"""Identity of spans, and the choice of traces to record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.common.tracing.context import SpanContext, is_within, new_span_id, new_trace_id, parse

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{SPAN}-01"


def test_a_header_of_the_specification_is_read() -> None:
    assert parse(HEADER) == SpanContext(TRACE, SPAN, sampled=True)


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True)])
def test_only_the_lowest_flag_decides_whether_a_trace_is_recorded(flags: str, sampled: bool) -> None:
    found = parse(f"00-{TRACE}-{SPAN}-{flags}")
    assert found is not None and found.sampled is sampled


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"01-{TRACE}-{SPAN}-01",
        HEADER.upper(),
        HEADER + "-extra",
        HEADER + "\n",
        f"00-{TRACE[1:]}-{SPAN}-01",
        "00-٠af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ],
)
def test_any_other_text_is_no_trace(header: str | None) -> None:
    assert parse(header) is None


@given(st.text(max_size=80))
def test_no_text_raises_an_error(text: str) -> None:
    assert parse(text) is None or parse(text) == parse(text.lower())


@pytest.mark.parametrize("sampled", [True, False])
def test_a_context_that_is_written_is_read_again(sampled: bool) -> None:
    context = SpanContext(new_trace_id(), new_span_id(), sampled)
    assert parse(context.header()) == context


def test_two_processes_agree_on_the_id_of_a_child() -> None:
    assert SpanContext(TRACE, SPAN).child(1, "job.build") == SpanContext(TRACE, SPAN).child(1, "job.build")


def test_a_child_stays_in_the_trace_of_its_parent() -> None:
    child = SpanContext(TRACE, SPAN, sampled=False).child(1, "job.build")
    assert (child.trace_id, child.sampled) == (TRACE, False)
    assert parse(child.header()) == child


def test_children_of_other_names_attempts_and_parents_differ() -> None:
    one, other = SpanContext(TRACE, SPAN), SpanContext(TRACE, "0" * 15 + "1")
    children = [one.child(1, "a"), one.child(2, "a"), one.child(1, "b"), one.child(1, "a", "b"), other.child(1, "a")]
    assert len({child.span_id for child in children} | {one.span_id}) == 6


@pytest.mark.parametrize(("ratio", "within"), [(0.0, False), (0.49, False), (0.51, True), (1.0, True)])
def test_the_lower_half_of_the_id_decides_about_a_ratio(ratio: float, within: bool) -> None:
    assert is_within("f" * 16 + "8" + "0" * 15, ratio) is within


def test_a_ratio_of_one_records_all() -> None:
    assert is_within("f" * 32, 1.0)
