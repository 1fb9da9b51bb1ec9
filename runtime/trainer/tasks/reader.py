"""A dataset as user code reads it: batches of decoded records, task by task."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from runtime.errors import RegattaError
from runtime.messages import training as messages
from runtime.trainer.tasks.collation import decoder, stack
from runtime.trainer.tasks.task_client import Place

Decode = Callable[[Any], Any]
# The number of a record within its task, and the record.
Placed = tuple[int, Any]
Wanted = Callable[[Iterable[Placed]], Iterator[Placed]]

FAIL_TASK, SKIP, RAISE = "fail-task", "skip", "raise"
ON_BAD_RECORD = (FAIL_TASK, SKIP, RAISE)

# The default number of batches that are read while another is trained on.
AHEAD = 4


class BadRecord(RegattaError):
    """User code cannot decode a record, because of ``__cause__``; ``place`` is its number within its task."""

    def __init__(self, why: str, place: int) -> None:
        super().__init__(why)
        self.place = place


@dataclass(frozen=True)
class Reader:
    """Records of the dataset ``name``. Calling it returns an iterator over one pass (this trainer's part).

    ``batch``: records of a batch, None for single records. ``shuffle``: records within a task are mixed in windows of
    this many. ``decode`` converts a record for user code; without it, ``collation`` does the conversion of its format.
    ``on_bad_record`` selects what happens if that fails: ``fail-task`` (reported to the master, which searches for the
    record with other trainers), ``skip`` (it is left out and logged) or ``raise``. A thread reads up to ``ahead``
    batches ahead of the current one.
    """

    name: str
    batch: int | None = None
    shuffle: int = 0
    decode: Decode | None = None
    on_bad_record: str = FAIL_TASK
    ahead: int = AHEAD
    one_pass: Callable[[Reader], Iterator[Any]] = field(repr=False, default=lambda reader: iter(()))

    def __call__(self) -> Iterator[Any]:
        return self.one_pass(self)

    def reads_ahead(self, records: int) -> bool:
        """Whether a begun task of this many records is read in the background.

        Not if it is one batch, which is waited for in any case.
        """
        return self.reads_on and self.batch is not None and records > self.batch

    @property
    def reads_on(self) -> bool:
        """Whether the next tasks are read in the background.

        Single records are not: to pass each between threads takes longer than to read it.
        """
        return self.ahead > 0 and self.batch is not None

    def decodes(self, format_: str) -> bool:
        """Whether code other than this project's reading and collating processes records of a format."""
        return (self.decode or decoder(format_)) is not None

    def batches(
        self, records: Iterable[Placed], seed: Sequence[int], format_: str, wanted: Wanted = iter
    ) -> Generator[tuple[Place, Any]]:
        """The batches of one task, whose records are of a format, with the places of their records.

        ``seed`` fixes the order; batches never cross the task's end. ``wanted`` passes records on until no more are
        needed; the rest is not decoded. Raises BadRecord if a record cannot be decoded.
        """
        mixed = wanted(_mix(records, self.shuffle, seed) if self.shuffle > 1 else records)
        decode = self.decode or decoder(format_)
        decoded = self._decoded(mixed, decode) if decode else mixed
        if self.batch is None:
            yield from (((place, place + 1), value) for place, value in decoded)
            return
        while rows := list(islice(decoded, self.batch)):
            places, values = zip(*rows, strict=True)
            yield (min(places), max(places) + 1), stack(values, "" if self.decode else format_)

    def _decoded(self, records: Iterable[Placed], decode: Decode) -> Iterator[tuple[int, Any]]:
        for place, record in records:
            try:
                value = decode(record)
            except Exception as error:
                why = f"record {place} of the task cannot be decoded ({type(error).__name__}: {error})"
                if self.on_bad_record != SKIP:
                    raise BadRecord(why, place) from error
                print(messages.RECORD_SKIPPED(why=why), file=sys.stderr, flush=True)  # noqa: T201  it goes to the job's log
            else:
                yield place, value


def _mix(records: Iterable[Placed], window: int, seed: Sequence[int]) -> Iterator[Placed]:
    rng = np.random.default_rng(list(seed))
    rest = iter(records)
    while rows := list(islice(rest, window)):
        yield from (rows[index] for index in rng.permutation(len(rows)))
