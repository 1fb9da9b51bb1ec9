"""Run-length encoding of integer sequences: ``1, 3, 5, 7, 2`` is ``[[1, 2, 4], 2]`` (first, step, count)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Run = int | list[int]

# A shorter run takes more space than its numbers.
_WORTHWHILE = 4


def to_runs(numbers: Sequence[int]) -> list[Run]:
    """Encode numbers as plain numbers and arithmetic progressions, in order."""
    return list(_runs(numbers))


def from_runs(runs: Iterable[Run]) -> tuple[int, ...]:
    """Decode the result of ``to_runs``."""
    return tuple(number for run in runs for number in _spread(run))


def _runs(numbers: Sequence[int]) -> Iterator[Run]:
    begin = 0
    while begin < len(numbers):
        end = _end_of_run(numbers, begin)
        if end - begin < _WORTHWHILE:
            yield numbers[begin]
            begin += 1
        else:
            yield [numbers[begin], numbers[begin + 1] - numbers[begin], end - begin]
            begin = end


def _end_of_run(numbers: Sequence[int], begin: int) -> int:
    end = begin + 2
    while end < len(numbers) and numbers[end] - numbers[end - 1] == numbers[begin + 1] - numbers[begin]:
        end += 1
    return min(end, len(numbers))


def _spread(run: Run) -> Sequence[int]:
    if isinstance(run, int):
        return (run,)
    first, step, count = run
    return [first + step * turn for turn in range(count)]
