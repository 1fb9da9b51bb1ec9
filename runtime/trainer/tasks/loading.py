"""A whole split of a dataset in memory, put together as a reader puts batches together."""

from __future__ import annotations

from typing import Any

from runtime.data import catalogue
from runtime.data.dataset import DatasetInfo
from runtime.errors import UsageError
from runtime.trainer.tasks.collation import decoder, stack
from runtime.trainer.tasks.reader import Decode


def load(info: DatasetInfo, split: str, decode: Decode | None = None) -> Any:
    """All records of a split as ``collation.stack`` gives them. Raises UsageError for a split without records, as the
    format does for a file that is not as it should be, and as ``decode`` does."""
    chunks = catalogue.chunks(info, split)
    rows: list[Any] = []
    for chunk in chunks:
        use = decode or decoder(chunk.format)
        rows += map(use, catalogue.read_chunk(chunk)) if use else catalogue.read_chunk(chunk)
    if not rows:
        raise UsageError(f"The part {split!r} of {info.name} has no records.")
    formats = {chunk.format for chunk in chunks}
    return stack(rows, "" if decode or len(formats) > 1 else formats.pop())
