"""Where a watch continues after its stream broke, with scripted answers of etcd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyetcd import etcdrpc

from runtime.coordination.base import Change, StoreUnavailable
from runtime.coordination.etcd import _EtcdWatch, _Names
from runtime.coordination.etcd_address import EtcdAddress

ADDRESS = EtcdAddress(("127.0.0.1:1",), "/test")


class BreakingStream:
    """Stream that yields its answers, then breaks."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self._answers = answers

    def __iter__(self) -> Iterator[Any]:
        yield from self._answers
        raise StoreUnavailable("the stream broke")

    def close(self) -> None: ...


class BreakingConnection:
    """Each stream yields one list of answers and breaks.

    ``starts`` are the revisions from which they were requested.
    """

    def __init__(self, *streams: Sequence[Any]) -> None:
        self._streams = list(streams)
        self.starts: list[int] = []

    def watch(self, create: Any, seconds: float) -> BreakingStream:
        self.starts.append(create.start_revision)
        return BreakingStream(self._streams.pop(0))


def answer(*revisions: int) -> Any:
    header = etcdrpc.ResponseHeader(revision=max(revisions, default=9))
    return etcdrpc.WatchResponse(header=header, events=[event(revision) for revision in revisions])


def event(revision: int) -> Any:
    key = ADDRESS.key(f"/w/{revision}")
    return {"kv": {"key": key, "create_revision": revision, "mod_revision": revision}}


def followed(connection: BreakingConnection, count: int, after: int = 4) -> list[int]:
    """Return the revisions of the first changes of a watch."""
    watch = _EtcdWatch(connection, _Names(ADDRESS), "/w/", after, 30.0)  # type: ignore[arg-type]
    changes = iter(watch)
    found = [next(changes) for _ in range(count)]
    assert all(isinstance(change, Change) for change in found)
    return [change.revision for change in found]


def test_after_a_break_a_watch_goes_on_behind_the_last_event_of_an_answer() -> None:
    connection = BreakingConnection([answer(5, 6, 7)], [answer(8)])
    assert followed(connection, 4) == [5, 6, 7, 8]
    assert connection.starts == [5, 8]


def test_after_a_break_without_an_event_a_watch_goes_on_where_it_was() -> None:
    connection = BreakingConnection([answer()], [answer(5)])
    assert followed(connection, 1) == [5]
    assert connection.starts == [5, 5]
