"""Encodings of records for programs in any language."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from runtime.data import record_codec
from runtime.errors import UsageError
from runtime.messages import training as messages


def raw(record: Any) -> bytes:
    """Return a record's bytes: features and label packed as in ``runtime/data/record_codec.py``, bytes unchanged, else
    JSON.

    Raises UsageError for a value without such a form.
    """
    if _is_features(record):
        return record_codec.encode(*record)
    if isinstance(record, bytes):
        return record
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=_plain).encode()


def line(record: Any) -> str:
    """Return a record as a line of CSV without its line break: label then features, or the values of a row in their
    order.

    Raises UsageError for a value without such a form.
    """
    if _is_features(record):
        features, label = record
        return ",".join([repr(label), *map(repr, features.ravel().tolist())])
    values = list(record.values()) if isinstance(record, Mapping) else record
    if not isinstance(values, list | tuple) or any(isinstance(value, bytes | dict | list) for value in values):
        raise UsageError(messages.NO_CSV_FORM())
    cells = io.StringIO()
    csv.writer(cells, lineterminator="").writerow(values)
    return cells.getvalue()


def _is_features(record: Any) -> bool:
    return isinstance(record, tuple) and len(record) == 2 and isinstance(record[0], np.ndarray)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise UsageError(
        f"A record holds {type(value).__name__}, which JSON has no form for. Read the chunks' files instead."
    )
