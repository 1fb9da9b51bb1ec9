"""Invariants of every history, with any faults. Pure; each function returns the violations as messages.

| name | meaning |
|---|---|
| I1 ``owners_only_record_checkpoints`` | a checkpoint is recorded by the process that is registered as its server |
| I2 ``recorded_checkpoints_are_whole`` | at every revision current and previous are files that exist and are complete |
| I3 ``dispatches_are_unique`` | no dispatch goes to two trainers; epochs rise; nothing uncommitted is handed out |
| I4 ``passes_end_whole`` | a pass begins when every task of the one before is done or discarded |
| I5 ``acknowledged_is_kept`` | an acknowledged finish is kept after any crash |
| I6 ``never_stands_still`` | while a trainer is alive, the job makes progress within a bound |
| I7 ``steps_count_once`` | versions rise by one, and no step of a trainer's process is in two of them |
| I8 ``rounds_are_of_members`` | a version of several is made by the live trainers of one pass on one base |
| I9 ``nobody_runs_ahead`` | with a bound of s no trainer pulls while more than s steps ahead of the slowest |
| I10 ``accounts_balance`` | a parameter is minus the sum of the applied steps, in every pull |
| I11 ``steps_meet_one_incarnation`` | within a step a trainer gets answers of one incarnation of each server |
| I12 ``all_agree_in_the_end`` | at the end, all trainers pull the same bits |
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

import numpy as np

from runtime.checkpoint.index import Meta
from runtime.coordination.base import Listing, Versioned
from runtime.master.messages import Trainer
from runtime.master.queue_store import Ledger
from runtime.master.task_table import TaskTable
from runtime.master.types import Entry, Saved, Status
from tests.faults.recording.history import Event, of_kind

Violations = list[str]

_SETTLED = (Status.DONE, Status.DISCARDED, Status.SPLIT)


# --- Checkpoints -----------------------------------------------------------------------------------------------------
def _stored(events: Iterable[Event]) -> list[Event]:
    """Changes of the coordination store, in order of revision."""
    return sorted(of_kind(events, "stored"), key=lambda event: event["revision"])


def _metas(events: Iterable[Event]) -> Iterator[tuple[int, int, Meta]]:
    """Shard, revision and record of every checkpoint."""
    for event in _stored(events):
        head, _slash, shard = event["key"].partition("/")
        if head == "checkpoints" and event["value"] is not None:
            yield int(shard), event["revision"], Meta.from_bytes(event["value"].encode())


def owners_only_record_checkpoints(events: Iterable[Event]) -> Violations:
    """I1."""
    owners: dict[str, int] = {}
    last: dict[str, int] = {}
    found = []
    for event in _stored(events):
        head, _slash, shard = event["key"].rpartition("/")
        if head == "members/pserver":
            owners[shard] = event["create"]
        elif head == "checkpoints" and event["value"] is not None:
            writer = Meta.from_bytes(event["value"].encode()).current.incarnation
            if writer != owners.get(shard):
                found.append(f"incarnation {writer} recorded for server {shard}, which is {owners.get(shard)}")
            if writer < last.get(shard, 0):
                found.append(f"incarnation {writer} recorded for server {shard} after {last[shard]}")
            last[shard] = writer
    return found


def recorded_checkpoints_are_whole(events: Sequence[Event], digests: Mapping[str, str]) -> Violations:
    """I2. ``digests`` are the MD5 sums of the files when they were recorded; damaged files have none."""
    metas = list(_metas(events))
    found = [
        f"revision {revision} names {entry.file}, which is not the file that was written"
        for _shard, revision, meta in metas
        for entry in meta.entries
        if digests.get(entry.file) != entry.md5
    ]
    for event, shard, recorded in _deletions(events):
        ours = [(revision, meta) for number, revision, meta in metas if number == shard]
        since = min((revision for revision, meta in ours if meta.current.file == recorded), default=0)
        found += [
            f"{event['file']} was deleted, and revision {revision} names it"
            for revision, meta in ours
            if revision >= since and event["file"] in [entry.file for entry in meta.entries]
        ]
    return found


def _deletions(events: Iterable[Event]) -> Iterator[tuple[Event, int, str]]:
    """Each deletion, with the shard and the file that its process had recorded last."""
    recorded: dict[str, tuple[int, str]] = {}
    for event in events:
        if event.kind == "recorded":
            recorded[event.source] = (event["shard"], event["file"])
        elif event.kind == "deleted" and event.source in recorded:
            yield event, *recorded[event.source]


# --- Tasks -----------------------------------------------------------------------------------------------------------
class _Snapshot:
    """The store at a revision, as far as the ledger reads it."""

    def __init__(self) -> None:
        self.entries: dict[str, Versioned] = {}

    def take(self, event: Event) -> None:
        if event["value"] is None:
            self.entries.pop(event["key"], None)
        else:
            value, revision = event["value"].encode(), event["revision"]
            self.entries[event["key"]] = Versioned(event["key"], value, event["create"], revision)

    def list(self, prefix: str) -> Listing:
        return Listing(tuple(entry for key, entry in sorted(self.entries.items()) if key.startswith(prefix)), 0)

    def table(self) -> TaskTable | None:
        parts = self.list("master/table/").entries
        return TaskTable.from_json(json.loads(b"".join(part.value for part in parts))) if parts else None


def states_of_the_queue(events: Iterable[Event]) -> list[Saved]:
    """The committed queue at every revision, read with the master's own code."""
    snapshot = _Snapshot()
    changes: dict[int, list[Event]] = defaultdict(list)
    for event in _stored(events):
        if event["key"].startswith("master/"):
            changes[event["revision"]].append(event)
    states = []
    for _revision, together in sorted(changes.items()):
        for event in together:
            snapshot.take(event)
        if (table := snapshot.table()) and (saved := Ledger(snapshot, "").load(table)):
            states.append(saved)
    return states


def dispatches_are_unique(events: Iterable[Event], states: Sequence[Saved]) -> Violations:
    """I3."""
    committed, found = set(), []
    given: dict[int, dict[int, Trainer]] = defaultdict(dict)
    highest: dict[int, int] = defaultdict(int)
    for state in states:
        for task, entry in enumerate(state.entries):
            for epoch, trainer in _dispatches(entry):
                committed.add((entry.pass_id, task, epoch, trainer.index))
                fresh = epoch not in given[task] and epoch <= max(given[task], default=0)
                if fresh or given[task].setdefault(epoch, trainer) != trainer:
                    found.append(f"task {task} was given as epoch {epoch} to {trainer} after {given[task]}")
            if max(entry.epoch, entry.latest) < highest[task]:
                found.append(f"the epoch of task {task} fell from {highest[task]} to {entry.epoch}")
            highest[task] = max(entry.epoch, entry.latest)
    holders: dict[tuple[int, int, int], str] = {}
    for event in of_kind(events, "got"):
        key = (event["pass_id"], event["task"], event["epoch"])
        if holders.setdefault(key, event.source) != event.source:
            found.append(f"pass, task and epoch {key} were given to {holders[key]} and to {event.source}")
        if (*key, _index(event.source)) not in committed:
            found.append(f"{event.source} got {key}, which was not committed")
    return found


def _dispatches(entry: Entry) -> Sequence[tuple[int, Trainer]]:
    """The trainers that have a task, with their epochs; near the end of a pass there may be two."""
    if entry.status is not Status.PENDING or entry.trainer is None:
        return ()
    first = (entry.epoch, entry.trainer)
    return sorted((first, (entry.rival.epoch, entry.rival.trainer))) if entry.rival else (first,)


def passes_end_whole(states: Sequence[Saved], tasks: int) -> Violations:
    """I4. ``tasks`` is the number of tasks of the dataset; later ones are pieces, which replace a task in a pass."""
    found = []
    for before, after in pairwise(states):
        ended, begun = before.head.pass_id, after.head.pass_id
        if begun not in (ended, ended + 1):
            found.append(f"pass {begun} followed pass {ended}")
        elif begun > ended >= 0:
            found += [
                f"pass {begun} began while task {task} was {entry.status.name} of pass {entry.pass_id}"
                for task, entry in enumerate(after.entries)
                if not (_is_settled(entry) if entry.pass_id == ended else entry.pass_id == begun or task >= tasks)
            ]
    return found


def _is_settled(entry: Entry) -> bool:
    """Whether a task of a finished pass is settled.

    The last one is stored as reset, with the trainer that finished or failed it.
    """
    return entry.status in _SETTLED or (entry.status is Status.TODO and bool(entry.trainer or entry.failures_ever))


def _is_over(entry: Entry, state: Saved) -> bool:
    return state.head.pass_id > entry.pass_id and _is_settled(entry)


def acknowledged_is_kept(events: Iterable[Event], states: Sequence[Saved]) -> Violations:
    """I5."""
    found = []
    for event in of_kind(events, "finished"):
        pass_id, task, epoch = event["pass_id"], event["task"], event["epoch"]
        course = [(state, state.entries[task]) for state in states if len(state.entries) > task]
        since = next(
            (n for n, (_state, entry) in enumerate(course) if (entry.pass_id, entry.epoch) == (pass_id, epoch)), None
        )
        if since is None:
            found.append(f"the finish of task {task} in pass {pass_id} was acknowledged, and it was never given")
            continue
        rest = [(state, entry) for state, entry in course[since:] if entry.pass_id == pass_id]
        kept = [
            entry.epoch == epoch and (entry.status is Status.DONE or _is_over(entry, state)) for state, entry in rest
        ]
        # The last task of a pass may be given again, in the next pass, by the transaction that finishes it.
        committed = True in kept or course[since + len(rest) :]
        if not committed or False in kept[_first(kept) :]:
            found.append(f"the finish of task {task} in pass {pass_id} was acknowledged and is lost")
    return found


def _first(kept: Sequence[bool]) -> int:
    return kept.index(True) if True in kept else len(kept)


def never_stands_still(events: Iterable[Event], kinds: Sequence[str], bound: float) -> Violations:
    """I6. ``kinds`` count as progress; ``bound`` is the maximum number of seconds between two of them."""
    steps = of_kind(events, *kinds)
    return [
        f"nothing went on for {after.at - before.at:.1f} s"
        for before, after in pairwise(steps)
        if after.at - before.at > bound
    ]


def _index(source: str) -> int:
    return int(source.partition("-")[2].partition(".")[0])


# --- Parameters ------------------------------------------------------------------------------------------------------
def _servers(events: Iterable[Event]) -> Mapping[int, list[Event]]:
    """The events of each server's processes, one start after the other."""
    found: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.source.startswith("pserver-"):
            found[_index(event.source)].append(event)
    return {
        server: sorted(some, key=lambda event: (_run_number(event.source), event.at)) for server, some in found.items()
    }


def _run_number(source: str) -> int:
    return int(source.rpartition(".")[2])


def steps_count_once(events: Iterable[Event]) -> Violations:
    """I7. A server that is restored, from a checkpoint or with a trainer's values, returns to their version.

    Later steps may then be applied again.
    """
    found = []
    for server, deeds in _servers(events).items():
        made: list[tuple[int, set[tuple[int, int]]]] = [(0, set())]
        before, run = made, 0  # what the earlier starts had made
        for event in deeds:
            if _run_number(event.source) != run:
                before, run = made, _run_number(event.source)
            if event.kind in ("initialised", "restored", "reseeded"):
                version = event["version"]
                made = [some for some in before if some[0] <= version]
                if made[-1][0] < version:
                    found.append(f"server {server} went on from version {version}, which was never made")
                    made.append((version, set()))
            elif event.kind == "applied":
                steps = {(step["incarnation"], step["seq"]) for step in event["steps"]}
                if event["version"] != made[-1][0] + 1 or len(steps) < len(event["steps"]):
                    found.append(f"server {server} made version {event['version']} after {made[-1][0]} of {steps}")
                twice = steps & set().union(*(some for _version, some in made))
                found += [f"server {server} applied {step} a second time" for step in sorted(twice)]
                made = [*made, (event["version"], steps)]
    return found


@dataclass
class _Present:
    """The live and the active trainers, as one start of a server has them."""

    live: dict[int, int] = field(default_factory=dict)
    inside: dict[int, int] = field(default_factory=dict)  # the pass that each is in

    def take(self, event: Event) -> None:
        if event.kind == "members":
            now = {int(index): incarnation for index, incarnation in event["live"].items()}
            for index, incarnation in self.live.items():
                if now.get(index) != incarnation:
                    self.inside.pop(index, None)
            self.live = now
        elif event.kind == "begin_pass":
            self.inside[event["trainer"]] = event["number"]
        elif event.kind == "end_pass":
            self.inside.pop(event["trainer"], None)


def rounds_are_of_members(events: Iterable[Event], quorum: int = 0) -> Violations:
    """I8. ``quorum``: how many make a version; 0: all trainers present when it could begin."""
    found = []
    for server, run, deeds in _runs(events):
        present, due = _Present(), set[int]()
        for event in deeds:
            present.take(event)
            due &= set(present.inside)
            if event.kind != "applied":
                continue
            found += [f"server {server}.{run}, version {event['version']}: {why}"
                      for why in _round(event, present, due, quorum)]  # fmt: skip
            due = set(present.inside)
    return found


def _runs(events: Iterable[Event]) -> Iterator[tuple[int, int, list[Event]]]:
    for server, deeds in _servers(events).items():
        for run in sorted({_run_number(event.source) for event in deeds}):
            yield server, run, [event for event in deeds if _run_number(event.source) == run]


def _round(event: Event, present: _Present, due: set[int], quorum: int) -> Iterator[str]:
    steps = event["steps"]
    contributors = {step["trainer"] for step in steps}
    if len(contributors) < len(steps):
        yield "a trainer counts twice"
    for step in steps:
        if present.live.get(step["trainer"]) != step["incarnation"]:
            yield f"trainer {step['trainer']} of incarnation {step['incarnation']} is no member"
        if step["base"] != event["version"] - 1:
            yield f"trainer {step['trainer']} computed at version {step['base']}"
    passes = {present.inside.get(index) for index in contributors}
    lowest = min(present.inside.values(), default=None)
    if passes != {lowest}:
        yield f"it is of passes {passes}, the lowest is {lowest}"
    waited = {index for index in due if present.inside[index] == lowest}
    enough = min(quorum, len(waited)) if quorum else len(waited)
    if len(contributors) < enough or (not quorum and not waited <= contributors):
        yield f"it was made by {sorted(contributors)}, though {sorted(waited)} were there"
    if quorum and len(contributors) > quorum:
        yield f"{len(contributors)} made it, {quorum} should"


def nobody_runs_ahead(events: Iterable[Event], bound: int) -> Violations:
    """I9."""
    found = []
    for server, run, deeds in _runs(events):
        present, clocks = _Present(), dict[int, int]()
        for event in deeds:
            present.take(event)
            if event.kind == "begin_pass":
                clocks[event["trainer"]] = min(clocks.values(), default=0)
            elif event.kind == "reseeded":
                clocks = {index: event["clocks"].get(str(index), clock) for index, clock in clocks.items()}
            clocks = {index: clock for index, clock in clocks.items() if index in present.inside}
            if event.kind == "applied":
                for step in event["steps"]:
                    if step["trainer"] in clocks:
                        clocks[step["trainer"]] += 1
            elif event.kind == "let pull" and clocks.get(event["trainer"], 0) > min(clocks.values(), default=0) + bound:
                found.append(f"server {server}.{run} let trainer {event['trainer']} pull at {clocks}")
    return found


@dataclass
class _Account:
    """The expected value of a parameter. ``doubt`` is the possible float32 error if a share was not an integer."""

    balance: Fraction = Fraction(0)
    doubt: float = 0.0

    def withdraw(self, amount: Fraction) -> _Account:
        balance = self.balance - amount
        if amount.denominator == 1 and not self.doubt:
            return _Account(balance)
        return _Account(balance, self.doubt + float(np.spacing(np.float32(abs(balance) + abs(amount)))))

    def is_at(self, seen: float) -> bool:
        return abs(Fraction(seen) - self.balance) <= Fraction(self.doubt)


def accounts_balance(events: Sequence[Event], mode: str) -> Violations:
    """I10, with SGD and a learning rate of 1. ``mode``: sync, m_of_n, async or ssp."""
    found, seen = [], defaultdict[tuple[int, int], list[_Account]](list)
    for server, deeds in _servers(events).items():
        made = {0: _Account()}
        shares = _Shares(mode)
        run = 0
        for event in deeds:
            if _run_number(event.source) != run:
                run, shares = _run_number(event.source), _Shares(mode)
            shares.take(event)
            version = event.facts.get("version", 0)
            if event.kind == "initialised":
                made = {0: _Account(Fraction(event["balance"]))}
            elif event.kind in ("restored", "reseeded") and not made.get(version, _Account()).is_at(event["balance"]):
                found.append(f"server {server} restored {event['balance']} as version {version}: {made.get(version)}")
            elif event.kind == "applied":
                made[version] = made.get(version - 1, _Account()).withdraw(shares.of(event))
                if event["of"] == version and not made[version].is_at(event["balance"]):
                    found.append(f"server {server} is at {event['balance']} in version {version}: {made[version]}")
            if version in made:
                seen[server, version].append(made[version])
    return found + _wrong_pulls(events, seen, range(len(_servers(events)) if mode == "sync" else 1))


def _wrong_pulls(
    events: Iterable[Event], made: Mapping[tuple[int, int], Sequence[_Account]], servers: Iterable[int]
) -> Violations:
    """Pulls of values that no version had.

    Only the first server's version is known in modes other than sync, and for a newcomer, whose first pull is part of
    no step: the servers may be a version apart then.
    """
    pulls = [event for event in of_kind(events, "joined", "pulled", "ended") if event["version"]]
    return [
        f"{event.source} pulled {event['balances'][server]} from server {server} in version {event['version']}"
        for event in pulls
        for server in servers
        if (server == 0 or event.kind != "joined")
        and not any(account.is_at(event["balances"][server]) for account in made.get((server, event["version"]), ()))
    ]


class _Shares:
    """The weight of each step: in a round its part of the samples, alone what keeps the pace of a round."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._live: Mapping[str, int] = {}
        self._samples: dict[int, int] = {}

    def take(self, event: Event) -> None:
        if event.kind == "members":
            gone = {int(index) for index, inc in self._live.items() if event["live"].get(index) != inc}
            self._live = event["live"]
            self._samples = {index: samples for index, samples in self._samples.items() if index not in gone}
        elif event.kind == "reseeded":
            self._samples = {int(index): samples for index, samples in event["samples"].items()}

    def of(self, event: Event) -> Fraction:
        steps = event["steps"]
        if self._mode in ("sync", "m_of_n"):
            total = sum(step["samples"] for step in steps)
            return sum((Fraction(step["amount"]) * step["samples"] / total for step in steps if total), Fraction(0))
        (step,) = steps
        if not step["samples"]:
            return Fraction(0)
        self._samples[step["trainer"]] = step["samples"]
        share = Fraction(step["samples"], sum(self._samples.values()))
        if self._mode == "async":
            share *= Fraction(len(self._samples), max(1, event["version"] - 1 - step["base"]))
        return Fraction(step["amount"]) * share


def steps_meet_one_incarnation(events: Iterable[Event]) -> Violations:
    """I11."""
    events = list(events)
    met: dict[tuple[str, int, int], int] = {}
    silent = {event.source for event in of_kind(events, "pulled")} - {
        event.source for event in of_kind(events, "answered")
    }
    found = [f"{source} does not name the server that answered its steps" for source in sorted(silent)]
    for event in of_kind(events, "answered"):
        step = (event.source, event["step"], event["server"])
        if met.setdefault(step, event["incarnation"]) != event["incarnation"]:
            found.append(
                f"{event.source} heard {met[step]} and {event['incarnation']} of {event['server']} in one step"
            )
    return found


def all_agree_in_the_end(events: Iterable[Event]) -> Violations:
    """I12. The last event of each trainer counts."""
    events = list(events)
    last = {event.source.partition(".")[0]: event for event in of_kind(events, "ended")}
    uneven = [f"{event.source} pulled a torn account" for event in events if event.facts.get("even") is False]
    digests = {event["digest"] for event in last.values()}
    return uneven + ([f"they ended with {len(digests)} different parameters"] if len(digests) != 1 else [])
