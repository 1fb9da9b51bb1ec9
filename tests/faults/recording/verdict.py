"""The invariants that a job's history is checked against, by subject."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runtime.checkpoint import reader
from runtime.checkpoint.filesystem import LocalFiles
from runtime.checkpoint.format import Damaged
from runtime.parameters.declaration import M_OF_N, SSP, SYNC, Mode
from tests.faults import invariants
from tests.faults.cluster import Cluster
from tests.faults.invariants import Violations
from tests.faults.recording.history import Event
from tests.faults.recording.witness import ARCHIVE


def of_tasks(cluster: Cluster, events: Sequence[Event]) -> Violations:
    """I3 to I5. The history must be of etcd: a file store reports only the last of several changes."""
    states = invariants.states_of_the_queue(events)
    return [
        *invariants.dispatches_are_unique(events, states),
        *invariants.passes_end_whole(states, cluster.plan.tasks),
        *invariants.acknowledged_is_kept(events, states),
    ]


def of_parameters(cluster: Cluster, events: Sequence[Event]) -> Violations:
    """I7 to I12."""
    mode = Mode.parse(cluster.plan.mode)
    rounds = mode.kind in (SYNC, M_OF_N)
    return [
        *invariants.steps_count_once(events),
        *(invariants.rounds_are_of_members(events, mode.quorum) if rounds else ()),
        *(invariants.nobody_runs_ahead(events, mode.number) if mode.kind == SSP else ()),
        *invariants.accounts_balance(events, mode.kind),
        *invariants.steps_meet_one_incarnation(events),
        *invariants.all_agree_in_the_end(events),
    ]


def of_checkpoints(cluster: Cluster, events: Sequence[Event]) -> Violations:
    """I1 and I2."""
    archive = cluster.directory / "checkpoints" / ARCHIVE
    return [
        *invariants.owners_only_record_checkpoints(events),
        *invariants.recorded_checkpoints_are_whole(events, digests(archive)),
    ]


def digests(archive: Path) -> dict[str, str]:
    """The MD5 sum of each complete checkpoint by its file's name, as in its record."""
    files = LocalFiles(archive)
    found = {}
    for name in files.names():
        try:
            found[name] = reader.load(files, name, wanted=reader.no_blocks).md5
        except Damaged:
            found[name] = ""
    return found
