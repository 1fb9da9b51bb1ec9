"""A parameter server with a witness of its shard and checkpoints: ``python -m tests.faults.recording.witness``.

The witness records the decisions of the shard and the changes of checkpoint files. It also makes the disk fail where
the test requires it: as a full disk while the file ``disk-full`` exists, or by ending the process at one of ``POINTS``
of its third checkpoint.
"""

from __future__ import annotations

import errno
import functools
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runtime import contract
from runtime.checkpoint import filesystem
from runtime.checkpoint.index import Book, Entry
from runtime.parameters.messages import Outcome
from runtime.pserver import __main__ as pserver
from runtime.pserver import checkpointer, cut_schedule
from runtime.pserver.requests import Release, Step, TrainerId
from runtime.pserver.shard import Shard
from tests.faults.recording.history import CRASH_AT, HISTORY, SOURCE, Recorder

# The points at which a writer of checkpoints can be killed.
POINTS = (
    "created",
    "half written",
    "written",
    "synced",
    "directory synced",
    "record not sent",
    "record answered",
    "before a deletion",
    "after a deletion",
)
DISK_FULL = "disk-full"
ARCHIVE = "archive"
_CRASHING_CHECKPOINT = 3

# A request with one of these answers has changed nothing.
_UNHEEDED = (Outcome.DUPLICATE, Outcome.FENCED, Outcome.SUPERSEDED, Outcome.ALREADY)
_RELEASING = (
    *("change_members", "tick", "declare", "reseed", "initialise"),
    *("begin_pass", "end_pass", "push", "pull"),
)


def _after(owner: Any, name: str, then: Callable[..., None]) -> None:
    """Call ``then(result, self, arguments...)`` after every call of a method."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def watched(self: Any, *arguments: Any, **named: Any) -> Any:
        result = method(self, *arguments, **named)
        then(result, self, *arguments, *named.values())
        return result

    setattr(owner, name, watched)


def _before(owner: Any, name: str, first: Callable[..., None]) -> None:
    method = getattr(owner, name)

    @functools.wraps(method)
    def watched(self: Any, *arguments: Any) -> Any:
        first(self, *arguments)
        return method(self, *arguments)

    setattr(owner, name, watched)


class ShardWitness:
    """Records the steps of each version of a shard, and the membership at that time."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._asked: dict[Any, tuple[TrainerId, Step]] = {}
        self._pulls: dict[Any, TrainerId] = {}

    def watch(self) -> None:
        _before(Shard, "push", self._pushing)
        _before(Shard, "pull", self._pulling)
        _after(Shard, "restore", self._restored)
        _after(Shard, "may_pull", self._let_through)
        for name in _RELEASING:
            _after(Shard, name, functools.partial(self._released, name))

    def _pushing(self, shard: Shard, ticket: Any, trainer_id: TrainerId, step: Step) -> None:
        self._asked[ticket] = (trainer_id, step)

    def _pulling(self, shard: Shard, ticket: Any, trainer_id: TrainerId) -> None:
        self._pulls[ticket] = trainer_id

    def _restored(self, result: None, shard: Shard, *arguments: Any) -> None:
        self._recorder.note("restored", version=shard.version, balance=_balance(shard))

    def _let_through(self, allowed: bool, shard: Shard, trainer_id: TrainerId) -> None:
        if allowed:
            self._recorder.note("let pull", trainer=trainer_id.index)

    def _released(self, name: str, releases: list[Release], shard: Shard, *arguments: Any) -> None:
        if not any(release.ticket is arguments[0] and release.outcome in _UNHEEDED for release in releases):
            self._record_cause(name, shard, arguments)
        made: dict[int, list[dict[str, Any]]] = {}
        for release in releases:
            if (asked := self._asked.pop(release.ticket, None)) is not None:
                step = _step(*asked)
                if release.outcome is Outcome.DONE:
                    made.setdefault(release.version, []).append(step)
                else:
                    self._recorder.note("not applied", outcome=release.outcome, version=release.version, **step)
        for version, steps in sorted(made.items()):
            self._recorder.note("applied", version=version, steps=steps, balance=_balance(shard), of=shard.version)
        for release in releases:  # applied steps came first
            if (trainer_id := self._pulls.pop(release.ticket, None)) and release.outcome is Outcome.DONE:
                self._recorder.note("let pull", trainer=trainer_id.index)

    def _record_cause(self, name: str, shard: Shard, arguments: tuple[Any, ...]) -> None:
        if name == "change_members":
            self._recorder.note("members", live={str(index): inc for index, inc in shard.barrier.live.items()})
        elif name in ("begin_pass", "end_pass"):
            trainer_id, number = arguments[1], arguments[3]
            self._recorder.note(name, trainer=trainer_id.index, incarnation=trainer_id.incarnation, number=number)
        elif name == "initialise" and shard.election.ready:
            self._recorder.note("initialised", version=shard.version, balance=_balance(shard))
        elif name == "declare" and len(arguments) > 4 and arguments[4].has_seen:
            offer = arguments[4]
            kind, number = ("begin_pass", offer.begun) if offer.begun > offer.ended else ("end_pass", offer.ended)
            self._recorder.note(kind, trainer=arguments[1].index, incarnation=arguments[1].incarnation, number=number)
        elif name == "reseed" and shard.election.ready:
            clocks, samples = (_by_text(numbers) for numbers in (arguments[4].clocks, arguments[4].samples))
            facts = {"version": shard.version, "balance": _balance(shard), "clocks": clocks, "samples": samples}
            self._recorder.note("reseeded", **facts)


def _by_text(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(index): number for index, number in numbers.items()}


def _step(trainer_id: TrainerId, step: Step) -> dict[str, Any]:
    amount = float(step.gradients[0][0]) if step.samples else 0.0
    facts = {"seq": step.seq, "samples": step.samples, "base": step.base, "amount": amount}
    return {"trainer": trainer_id.index, "incarnation": trainer_id.incarnation, **facts}


def _balance(shard: Shard) -> float:
    return float(shard.state.parameters[0][0]) if shard.state.parameters else 0.0


class DiskWitness:
    """Records changes of checkpoint files, keeps a second link to each recorded one, and injects disk faults."""

    def __init__(self, recorder: Recorder, directory: Path, point: str) -> None:
        self._recorder = recorder
        self._directory = directory
        self._point = point
        self._checkpoint = 0
        self._writes = 0

    def watch(self) -> None:
        _after(filesystem.LocalFiles, "create", self._created)
        _before(filesystem._LocalDraft, "write", self._writing)
        _before(filesystem._LocalDraft, "sync", lambda draft: self._reach("written"))
        _after(filesystem._LocalDraft, "sync", lambda none, draft: self._reach("synced"))
        _after(filesystem.LocalFiles, "sync_directory", lambda none, some: self._reach("directory synced"))
        _before(Book, "record", self._recording)
        _after(Book, "record", self._recorded)
        _before(filesystem.LocalFiles, "delete", lambda some, name: self._reach("before a deletion"))
        _after(filesystem.LocalFiles, "delete", self._deleted)

    def _reach(self, point: str) -> None:
        if point == self._point and self._checkpoint == _CRASHING_CHECKPOINT:
            self._recorder.note("crashes", point=point)
            os.kill(os.getpid(), signal.SIGKILL)

    def _created(self, draft: Any, some: Any, name: str) -> None:
        self._checkpoint, self._writes = self._checkpoint + 1, 0
        self._reach("created")

    def _writing(self, draft: Any, data: Any) -> None:
        if (self._directory / DISK_FULL).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._writes += 1
        if self._writes == 2:
            self._reach("half written")

    def _recording(self, book: Book, shard: int, entry: Entry, owner: Any) -> None:
        archive = self._directory / ARCHIVE
        archive.mkdir(exist_ok=True)
        written = next(path for path in self._directory.rglob(entry.file) if path.parent != archive)
        if not (archive / entry.file).exists():
            os.link(written, archive / entry.file)
        self._reach("record not sent")

    def _recorded(self, meta: Any, book: Book, shard: int, entry: Entry, owner: Any) -> None:
        self._reach("record answered")
        self._recorder.note("recorded", file=entry.file, version=entry.version, shard=shard)

    def _deleted(self, none: None, some: Any, name: str) -> None:
        self._recorder.note("deleted", file=name)
        self._reach("after a deletion")


def main() -> int:
    recorder = Recorder(Path(os.environ[HISTORY]), os.environ[SOURCE])
    # As often as the contract's setting, however short.
    checkpointer.LOOK_SECONDS = cut_schedule.LOOK_SECONDS = 0.02
    cut_schedule.NOTICE_SECONDS = 0.1
    ShardWitness(recorder).watch()
    if directory := os.environ.get(contract.CHECKPOINT_DIR):
        DiskWitness(recorder, Path(directory), os.environ.get(CRASH_AT, "")).watch()
    return pserver.main()


if __name__ == "__main__":
    sys.exit(main())
