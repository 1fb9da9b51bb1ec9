"""What a fault did: pure functions of what was recorded while it lasted."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

# A line of the job: the process that printed it, its number in this process, and the Unix time in seconds.
_STEP = re.compile(r"step (?P<process>\S+) (?P<number>\d+) (?P<time>\d+\.\d+)")


@dataclass(frozen=True)
class Step:
    """A line that a trainer printed after a completed step.

    ``time``: Unix seconds at which it was printed.
    """

    process: str
    number: int
    time: float


@dataclass(frozen=True)
class Request:
    """A request to the API. ``status`` is 0 if there was no response; ``began`` in Unix seconds."""

    began: float
    seconds: float
    status: int
    code: str = ""


@dataclass(frozen=True)
class Continuity:
    """Lines of one job. Each process numbers its lines from 1; those after its last stored line cannot be seen."""

    lost: int
    doubled: int
    out_of_order: int


@dataclass(frozen=True)
class Answers:
    """Responses of the API: how many, how many by status other than 200, and the slowest in seconds."""

    total: int
    failed: dict[int, int]
    slowest: float


def steps(texts: Iterable[str]) -> list[Step]:
    """Return the steps among the lines of a job, in their order."""
    found = (_STEP.fullmatch(text) for text in texts)
    return [Step(step["process"], int(step["number"]), float(step["time"])) for step in found if step]


def continuity(found: Sequence[Step]) -> Continuity:
    """Compare the numbers of each process with 1, 2, 3 and so on."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for step in found:
        numbers[step.process].append(step.number)
    lost = sum(max(seen) - len(set(seen)) for seen in numbers.values())
    doubled = sum(len(seen) - len(set(seen)) for seen in numbers.values())
    out_of_order = sum(after < before for seen in numbers.values() for before, after in pairwise(seen))
    return Continuity(lost, doubled, out_of_order)


def pause(found: Sequence[Step], start: float, end: float) -> float:
    """Return the longest time without a completed step of any trainer, in seconds, between two Unix times.

    The time from the last step before ``start`` counts, and that up to ``end``.
    """
    before = [step.time for step in found if step.time <= start]
    within = sorted(step.time for step in found if start < step.time <= end)
    moments = [max(before, default=start), *within, end]
    return max(after - earlier for earlier, after in pairwise(moments))


def answers(requests: Sequence[Request], start: float, end: float) -> Answers:
    """Count the requests that began between two Unix times."""
    chosen = [request for request in requests if start <= request.began <= end]
    failed = Counter(request.status for request in chosen if request.status != 200)
    return Answers(len(chosen), dict(failed), max((request.seconds for request in chosen), default=0.0))


def until_normal(requests: Sequence[Request], found: Sequence[Step], start: float, ready: float) -> float:
    """Return the seconds from ``start`` until everything is normal again.

    That is the latest of: ``ready``, when the cluster showed all parts ready; the end of the last failed request; the
    end of the last pause of more than two seconds.
    """
    failed = [
        request.began + request.seconds for request in requests if request.began >= start and request.status != 200
    ]
    moments = sorted(step.time for step in found)
    resumed = [after for before, after in pairwise(moments) if after - before > 2.0 and after > start]
    return max(ready, *failed, *resumed, start) - start
