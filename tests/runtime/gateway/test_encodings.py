"""Records in the forms that programs in any language read."""

from __future__ import annotations

import json

import numpy as np
import pytest

from runtime.data import record_codec
from runtime.errors import UsageError
from runtime.gateway import encodings
from runtime.messages import training as messages
from tests.messages import pattern

FEATURES = (np.array([1.5, 2.0], "f4"), 3)


def test_features_and_label_are_unchanged() -> None:
    assert encodings.raw(FEATURES) == record_codec.encode(*FEATURES)
    assert encodings.line(FEATURES) == "3,1.5,2.0"


def test_bytes_are_returned_unchanged() -> None:
    assert encodings.raw(b"\0\1") == b"\0\1"


def test_rows_are_json_or_a_line_of_cells() -> None:
    row = {"a": "1", "b": 'x "y", z'}
    assert json.loads(encodings.raw(row)) == row
    assert encodings.line(row) == '1,"x ""y"", z"'
    assert encodings.line(("1", "数")) == "1,数"


def test_arrays_in_rows_are_lists() -> None:
    assert json.loads(encodings.raw({"x": np.array([1, 2]), "y": np.float32(0.5)})) == {"x": [1, 2], "y": 0.5}


@pytest.mark.parametrize("record", [{"png": b"\x89"}, "text", {"x": [1]}])
def test_values_without_a_form_as_cells_are_an_error(record: object) -> None:
    with pytest.raises(UsageError, match=pattern(messages.NO_CSV_FORM)):
        encodings.line(record)


def test_values_without_a_form_as_json_are_an_error() -> None:
    with pytest.raises(UsageError, match="bytes"):
        encodings.raw({"png": b"\x89"})
