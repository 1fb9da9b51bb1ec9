"""Messages: English texts that carry their code and parameters."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import messages
from runtime.messages import (
    MAX_DEPTH,
    PARAGRAPH,
    Message,
    Template,
    from_json,
    mapped,
    paragraph,
    restore,
    shortened,
    to_json,
)
from runtime.messages.composition import clauses, enumerated, listed, prefixed, with_full_stop

TRAINING = Template("Training with {trainers}.")
TRAINERS = Template("{count} trainers")
FAILED = Template("{replica} failed: {error}")


@pytest.fixture(autouse=True)
def catalogue() -> Iterator[None]:
    messages.register("example", {"TRAINING": TRAINING, "TRAINERS": TRAINERS, "FAILED": FAILED})
    yield
    for template in (TRAINING, TRAINERS, FAILED):
        del messages._TEMPLATES[template.code]


def coded(text: str) -> tuple[str, str, dict[str, Any]]:
    """Return the text with the code and the parameters that a comparison of texts leaves out."""
    assert isinstance(text, Message)
    params = {name: coded(value) if isinstance(value, Message) else value for name, value in text.params.items()}
    return text[:], text.code, params


# --- Templates -------------------------------------------------------------------------------------------------------
def test_a_message_is_its_english_text_with_a_code_and_parameters() -> None:
    message = TRAINING(trainers=TRAINERS(count=2))
    assert coded(message) == (
        "Training with 2 trainers.",
        "example.training",
        {"trainers": ("2 trainers", "example.trainers", {"count": 2})},
    )


@pytest.mark.parametrize("params", [{}, {"count": 1, "more": 2}, {"number": 1}])
def test_parameters_must_be_those_of_the_template(params: dict[str, int]) -> None:
    with pytest.raises(TypeError, match=r"example\.trainers takes \['count'\]"):
        TRAINERS(**params)


def test_braces_in_a_value_stay_as_they_are() -> None:
    assert FAILED(replica="trainer-0", error="KeyError: '{replica}'") == "trainer-0 failed: KeyError: '{replica}'"


def test_a_value_that_is_neither_text_nor_number_is_formatted() -> None:
    message = FAILED(replica=None, error=float("nan"))
    assert (message, message.params) == ("None failed: nan", {"replica": "None", "error": "nan"})


def test_an_exception_keeps_the_code_of_its_message() -> None:
    assert coded(str(ValueError(TRAINERS(count=2)))) == coded(TRAINERS(count=2))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda message: pickle.loads(pickle.dumps(message))])
def test_a_copy_keeps_code_and_parameters(copied: Any) -> None:
    message = TRAINING(trainers=TRAINERS(count=2))
    assert coded(copied(message)) == coded(message)


def test_a_text_within_the_limit_keeps_its_code_and_a_longer_one_loses_its_end() -> None:
    message = TRAINERS(count=2)
    assert coded(shortened(message, 10)) == coded(message)
    assert shortened(message, 9) == "2 trainer"
    assert not isinstance(shortened(message, 9), Message)


def test_a_change_of_the_parameters_keeps_the_code() -> None:
    message = paragraph(FAILED(replica="trainer-0", error=TRAINING(trainers="/tmp/x/a.csv")), "in /tmp/x")
    changed = mapped(message, lambda text: text.replace("/tmp/x", "data"))
    assert changed == "trainer-0 failed: Training with data/a.csv. in data"
    assert coded(changed) == coded(
        paragraph(FAILED(replica="trainer-0", error=TRAINING(trainers="data/a.csv")), "in data")
    )


def test_a_change_of_a_plain_text_changes_it() -> None:
    assert mapped("in /tmp", str.upper) == "IN /TMP"


# --- Composition -----------------------------------------------------------------------------------------------------
def test_a_paragraph_holds_its_messages_and_leaves_empty_ones_out() -> None:
    two = paragraph(TRAINERS(count=2), "", "Wait.")
    assert coded(two) == (
        "2 trainers Wait.",
        PARAGRAPH,
        {"1": ("2 trainers", "example.trainers", {"count": 2}), "2": "Wait."},
    )


def test_a_paragraph_of_one_message_is_that_message() -> None:
    assert coded(paragraph("", TRAINERS(count=2))) == coded(TRAINERS(count=2))
    assert paragraph() == ""


@pytest.mark.parametrize(
    ("names", "expected"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_names_are_enumerated_as_in_a_sentence(names: list[str], expected: str) -> None:
    assert enumerated(names) == expected


def test_texts_are_separated_by_commas_or_semicolons() -> None:
    assert (listed(["a", "b", "c"]), clauses(["a", "b"]), listed([])) == ("a, b, c", "a; b", "")


def test_a_place_precedes_its_text_and_a_clause_becomes_a_sentence() -> None:
    assert (prefixed("train.csv", "the row is empty."), with_full_stop("it is gone")) == (
        "train.csv: the row is empty.",
        "it is gone.",
    )


# --- Exchange --------------------------------------------------------------------------------------------------------
VALUES = st.one_of(st.text(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False))
MESSAGES = st.recursive(
    VALUES,
    lambda inner: st.one_of(
        st.builds(lambda value: TRAINERS(count=value), inner),
        st.builds(lambda first, second: FAILED(replica=first, error=second), inner, inner),
    ),
    max_leaves=MAX_DEPTH - 2,
)


@given(MESSAGES)
def test_a_message_is_the_same_after_its_way_through_json(value: Any) -> None:
    messages.register("example", {"TRAINING": TRAINING, "TRAINERS": TRAINERS, "FAILED": FAILED})
    message = FAILED(replica="trainer-0", error=value)
    document = json.loads(json.dumps(to_json(message)))
    assert coded(from_json(document)) == coded(restore(document)) == coded(message)


def test_a_plain_text_is_itself_in_json() -> None:
    assert to_json("KeyError: 7") == from_json("KeyError: 7") == restore("KeyError: 7") == "KeyError: 7"


@pytest.mark.parametrize(
    "changed",
    [
        {"code": "example.unknown"},
        {"code": None},
        {"params": {}},
        {"params": {"count": 2, "more": 1}},
        {"params": {"count": float("inf")}},
        {"params": {"count": True}},
        {"params": {"count": 10**5000}},
        {"params": {"count": [2]}},
        {"params": None},
    ],
)
def test_a_peer_s_message_without_a_known_code_and_its_parameters_is_its_plain_text(changed: dict[str, Any]) -> None:
    text = from_json({**to_json(TRAINERS(count=2)), "text": "what the peer wrote", **changed})
    assert (text, type(text)) == ("what the peer wrote", str)


def test_the_text_of_a_peer_s_message_is_that_of_its_code() -> None:
    document = {**to_json(TRAINERS(count=2)), "text": "Sign in again at http://example.com."}
    assert from_json(document) == "2 trainers"


def test_a_peer_s_message_is_read_to_a_limited_depth() -> None:
    nested: Any = "deep"
    for _ in range(2000):
        nested = {"code": "example.trainers", "params": {"count": nested}, "text": "outer"}
    assert isinstance(from_json(nested), str)


@pytest.mark.parametrize("document", [None, 7, ["text"], {}, {"text": 7}, {"code": "example.training", "params": {}}])
def test_a_document_without_a_text_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="a message is a text"):
        from_json(document)


def test_a_stored_message_stays_in_the_words_in_which_it_was_written() -> None:
    document = {**to_json(TRAINERS(count=2)), "text": "2 workers"}
    assert coded(restore(document)) == ("2 workers", "example.trainers", {"count": 2})
