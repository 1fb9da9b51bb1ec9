"""The static part of a job's work: which chunks of which data set make up each task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from runtime.data.catalogue import Chunk


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

    def describe(self, task_ids: Iterable[int]) -> str:
        """Name tasks by their records, numbered through the data set from 0."""
        ends = list(accumulate(map(self.records_of, range(len(self.tasks))), initial=0))
        return "; ".join(
            f"records {ends[task]}-{ends[task + 1] - 1} ({Path(self.tasks[task][0].path).name})" for task in task_ids
        )

    def to_json(self) -> dict[str, Any]:
        """Paths once each: a chunk is the number of its file, and where it is."""
        files: dict[str, int] = {}
        tasks = [[[files.setdefault(chunk.path, len(files)), *chunk[1:]] for chunk in task] for task in self.tasks]
        return {"dataset": self.dataset, "files": list(files), "tasks": tasks}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TaskTable:
        files = body["files"]
        tasks = tuple(tuple(Chunk(files[file], *where) for file, *where in task) for task in body["tasks"])
        return cls(str(body["dataset"]), tasks)


def partition(dataset: str, chunks: Iterable[Chunk], chunks_per_task: int = 1) -> TaskTable:
    """Group consecutive chunks; the last task may be short. Fewer than one a task counts as one; empty chunks go."""
    size = max(1, chunks_per_task)
    kept = [chunk for chunk in chunks if chunk.records]
    groups = (tuple(kept[begin : begin + size]) for begin in range(0, len(kept), size))
    return TaskTable(dataset, tuple(groups))
