"""A data set as user code reads it: batches of decoded records, task by task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from runtime.data.records import Record

Decode = Callable[[Record], Any]


@dataclass(frozen=True)
class Reader:
    """Records of the data set ``name``. Called, it iterates over one pass (of what this trainer is given to do).

    ``batch``: records of a batch, None for single records. ``shuffle``: records within a task are mixed in windows of
    this many. ``decode`` turns a record ``(features, label)`` into what user code wants.
    """

    name: str
    batch: int | None = None
    shuffle: int = 0
    decode: Decode | None = None
    one_pass: Callable[[Reader], Iterator[Any]] = field(repr=False, default=lambda reader: iter(()))

    def __call__(self) -> Iterator[Any]:
        return self.one_pass(self)

    def batches(self, records: Iterable[Record], seed: Sequence[int]) -> Iterator[Any]:
        """The batches of one task. ``seed`` fixes the order; batches never cross the task's end."""
        mixed = _mix(records, self.shuffle, seed) if self.shuffle > 1 else iter(records)
        decoded = map(self.decode, mixed) if self.decode else mixed
        if self.batch is None:
            yield from decoded
            return
        while rows := list(islice(decoded, self.batch)):
            yield _stack(rows)


def _mix(records: Iterable[Record], window: int, seed: Sequence[int]) -> Iterator[Record]:
    rng = np.random.default_rng(list(seed))
    rest = iter(records)
    while rows := list(islice(rest, window)):
        yield from (rows[index] for index in rng.permutation(len(rows)))


def _stack(rows: Sequence[Any]) -> Any:
    """Rows as arrays: a tuple of arrays for rows that are tuples, else one array."""
    if not isinstance(rows[0], tuple):
        return _column(rows)
    return tuple(_column(column) for column in zip(*rows, strict=True))


def _column(values: Sequence[Any]) -> Any:
    """An array; plain floats become float32 like the features, plain integers int64."""
    array = np.array(values)
    return array.astype(np.float32) if isinstance(values[0], float) else array
