"""Fake clusters with logs of containers in memory, named by how they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from jobs.backends.base import AttemptRef, BackendUnavailable, Container, Phase
from tests.jobs.fakes import ObedientBackend

SECOND = 10**9
BEGIN = 1_790_000_000 * SECOND


def written(stamp: int, body: str) -> bytes:
    """Format a line as the API returns it."""
    at = datetime.fromtimestamp(stamp // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{at}.{stamp % SECOND:09d}Z {body}\n".encode()


class FaithfulLogs(ObedientBackend):
    """Returns the whole log. ``pieces``: size of the chunks, in bytes."""

    def __init__(self, pieces: int = 7) -> None:
        super().__init__()
        self.pods: dict[str, Container] = {}
        self.lines: dict[str, list[tuple[int, str]]] = {}
        self.asked: list[int] = []
        self.pieces = pieces

    def prints(self, name: str, *bodies: str, after: int = SECOND // 3) -> None:
        log = self.lines.setdefault(name, [])
        for body in bodies:
            log.append(((log[-1][0] if log else BEGIN) + after, body))

    def begins(self, name: str = "trainer-0", pod: str = "pod-1") -> None:
        self.pods[name] = Container(pod, begun=True)
        for attempt in self.views:
            self.becomes(attempt, name, Phase.RUNNING, agent=False)

    def ends(self, name: str = "trainer-0", **fields: Any) -> None:
        self.pods[name] = Container(self.pods[name].pod, begun=True, ended=True)
        for attempt in self.views:
            self.becomes(attempt, name, Phase.EXITED, agent=False, **{"code": 0, **fields})

    def container(self, ref: AttemptRef, name: str) -> Container:
        return self.pods.get(name, Container())

    def printed(self, ref: AttemptRef, name: str, since: int) -> Iterator[bytes]:
        self.asked.append(since)
        answer = self.answer(name, since)
        for begin in range(0, len(answer), self.pieces):
            yield answer[begin : begin + self.pieces]

    def answer(self, name: str, since: int) -> bytes:
        log = self.lines.get(name, [])
        return b"".join(written(stamp, body) for stamp, body in log if stamp >= since * SECOND)


class CuttingLogs(FaithfulLogs):
    """Breaks the connection after ``after`` bytes, ``times`` times."""

    def __init__(self, after: int, times: int) -> None:
        super().__init__()
        self.after, self.times = after, times

    def printed(self, ref: AttemptRef, name: str, since: int) -> Iterator[bytes]:
        if not self.times:
            yield from super().printed(ref, name, since)
            return
        self.times -= 1
        yield self.answer(name, since)[: self.after]
        raise BackendUnavailable("The connection was reset.")


class EndingLogs(FaithfulLogs):
    """Ends its answer after ``after`` bytes without an error, ``times`` times: a node fails below the API server."""

    def __init__(self, after: int, times: int) -> None:
        super().__init__()
        self.after, self.times = after, times

    def answer(self, name: str, since: int) -> bytes:
        whole = super().answer(name, since)
        if not self.times:
            return whole
        self.times -= 1
        return whole[: self.after]


class RefusingLogs(FaithfulLogs):
    """Refuses requests for a log, a number of times: too many requests, an internal error, gone."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def printed(self, ref: AttemptRef, name: str, since: int) -> Iterator[bytes]:
        if self.times:
            self.times -= 1
            raise BackendUnavailable("The request to the cluster failed: try again later")
        yield from super().printed(ref, name, since)


class MeddlingLogs(FaithfulLogs):
    """Calls a function between two chunks of its first answer."""

    def __init__(self, meddle: Callable[[], None]) -> None:
        super().__init__()
        self.meddle: Callable[[], None] | None = meddle

    def printed(self, ref: AttemptRef, name: str, since: int) -> Iterator[bytes]:
        for number, piece in enumerate(super().printed(ref, name, since)):
            if number == 5 and self.meddle is not None:
                meddle, self.meddle = self.meddle, None
                meddle()
            yield piece
