"""Layout of a shard's shared memory: marks, parameters and the undo journal, as trainers read it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from runtime.protocol.shared_memory import Layout

Array = NDArray[Any]


# Number of elements and type.
MARKS = (2, "<i8")


CLOCK, KEPT = range(2)


UNCHANGED = -1


def whole(marks: Array, version: int) -> bool:
    """Whether the parameters are those of ``version`` throughout."""
    return int(marks[CLOCK]) == version << 1


def kept(marks: Array, version: int, total: int) -> int | None:
    """How many of the ``total`` elements of ``version`` are in the journal; the others are among the parameters.

    None if the version is gone.
    """
    clock, count = int(marks[CLOCK]), int(marks[KEPT])
    if clock == version << 1:
        return 0
    if clock == version << 1 | 1:
        return count
    if clock == (version + 1) << 1 and count in (UNCHANGED, total):
        return max(count, 0)
    return None


def layout(sizes: Layout, journalled: bool) -> Layout:
    """The layout of a segment: the marks, the parameters, and as much again with a journal."""
    return [MARKS, *sizes, *(sizes if journalled else ())]


def restore(values: Sequence[Array], parameters: Sequence[Array], blocks: Sequence[Array], count: int) -> None:
    """Write a version to ``values``: its first ``count`` elements from the journal, the others from the parameters."""
    for value, parameter, block in zip(values, parameters, blocks, strict=True):
        mine = min(max(count, 0), block.size)
        value[:mine], value[mine:] = block[:mine], parameter[mine:]
        count -= mine
