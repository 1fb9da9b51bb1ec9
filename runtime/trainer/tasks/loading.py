"""Loading of a whole split of a dataset into memory, collated as a reader collates batches."""

from __future__ import annotations

from typing import Any

from runtime.data import catalogue
from runtime.data.dataset import DatasetInfo
from runtime.errors import UsageError
from runtime.messages import training as messages
from runtime.trainer.tasks.collation import decoder, stack
from runtime.trainer.tasks.reader import Decode


def load(info: DatasetInfo, split: str, decode: Decode | None = None) -> Any:
    """Load all records of a split, collated by ``collation.stack``.

    Raises UsageError for a split without records, what the format raises for an invalid file, and what ``decode``
    raises.
    """
    chunks = catalogue.chunks(info, split)
    rows: list[Any] = []
    for chunk in chunks:
        use = decode or decoder(chunk.format)
        rows += map(use, catalogue.read_chunk(chunk)) if use else catalogue.read_chunk(chunk)
    if not rows:
        raise UsageError(messages.SPLIT_EMPTY(split=f"{split!r}", name=info.name))
    formats = {chunk.format for chunk in chunks}
    return stack(rows, "" if decode or len(formats) > 1 else formats.pop())
