"""The static part of a job's work: the chunks of the dataset that make up each task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from runtime.data.dataset import PICTURES, Chunk
from runtime.data.span import CHUNK_BYTES
from runtime.messages import Message
from runtime.messages import training as messages
from runtime.messages.composition import clauses


class Span(NamedTuple):
    """Records of one task, from ``first`` up to but without ``end``, counted from 0 within the task."""

    task_id: int
    first: int
    end: int

    @property
    def records(self) -> int:
        return self.end - self.first


@dataclass(frozen=True)
class TaskTable:
    """``tasks[i]`` are the chunks of task i."""

    dataset: str
    tasks: tuple[tuple[Chunk, ...], ...]

    @property
    def records(self) -> int:
        return sum(map(self.records_of, range(len(self.tasks))))

    def records_of(self, task_id: int) -> int:
        return sum(chunk.records for chunk in self.tasks[task_id])

    def span(self, task_id: int) -> Span:
        """All records of a task."""
        return Span(task_id, 0, self.records_of(task_id))

    def describe(self, spans: Iterable[Span]) -> str:
        """Name records by their numbers through the dataset, from 0, and their files."""
        begins = list(accumulate(map(self.records_of, range(len(self.tasks))), initial=0))
        return clauses(self._name(span, begins[span.task_id]) for span in spans)

    def first_record(self, span: Span) -> tuple[int, str]:
        """Return the number of a span's first record through the dataset, from 0, and the name of its file."""
        begin = sum(map(self.records_of, range(span.task_id)))
        return begin + span.first, self._file_of(span)

    def _name(self, span: Span, begin: int) -> Message:
        if span.records == 1:
            return messages.RECORD(number=begin + span.first, file=self._file_of(span))
        first, last = begin + span.first, begin + span.end - 1
        return messages.RECORD_RANGE(first=first, last=last, file=self._file_of(span))

    def _file_of(self, span: Span) -> str:
        return Path(self.tasks[span.task_id][self.chunk_of(span)].path).name

    def chunk_of(self, span: Span) -> int:
        """The number within its task of the chunk in which a span begins."""
        ends = accumulate(chunk.records for chunk in self.tasks[span.task_id])
        return next(number for number, end in enumerate(ends) if span.first < end)

    def pieces(self, span: Span, most: int) -> list[Span]:
        """Cut a span of several records: into its chunks, or a part of one chunk into up to ``most`` equal pieces."""
        ends = accumulate(chunk.records for chunk in self.tasks[span.task_id])
        cuts = [end for end in ends if span.first < end < span.end]
        if not cuts:
            size = -(-span.records // most)
            cuts = list(range(span.first + size, span.end, size))
        return [Span(span.task_id, *piece) for piece in pairwise([span.first, *cuts, span.end])]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form. Each path occurs once: a chunk is the number of its file, and its place in it."""
        files: dict[str, int] = {}
        tasks = [[[files.setdefault(chunk.path, len(files)), *chunk[1:]] for chunk in task] for task in self.tasks]
        return {"dataset": self.dataset, "files": list(files), "tasks": tasks}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TaskTable:
        files = body["files"]
        tasks = tuple(tuple(Chunk(files[file], *where) for file, *where in task) for task in body["tasks"])
        return cls(str(body["dataset"]), tasks)


def partition(dataset: str, chunks: Iterable[Chunk], chunks_per_task: int = 1) -> TaskTable:
    """Group consecutive chunks into tasks; the last task may be short. Fewer than one chunk per task counts as one;
    empty chunks are dropped.

    For pictures, each a chunk, tasks have about the bytes of a usual chunk: a batch never crosses the end of a task.
    """
    kept = [chunk for chunk in chunks if chunk.records]
    if kept and kept[0].format == PICTURES:
        return TaskTable(dataset, tuple(_by_bytes(kept)))
    size = max(1, chunks_per_task)
    groups = (tuple(kept[begin : begin + size]) for begin in range(0, len(kept), size))
    return TaskTable(dataset, tuple(groups))


def _by_bytes(chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, ...]]:
    """Group chunks to at most CHUNK_BYTES, or one chunk."""
    group: list[Chunk] = []
    for chunk in chunks:
        if group and sum(each.length for each in group) + chunk.length > CHUNK_BYTES:
            yield tuple(group)
            group = []
        group.append(chunk)
    if group:
        yield tuple(group)
