"""Disk faults, during a checkpoint or afterwards."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from runtime.messages import training as messages
from tests.faults.cluster import Cluster
from tests.faults.recording import verdict
from tests.faults.recording.history import CRASH_AT
from tests.faults.recording.witness import ARCHIVE, DISK_FULL, POINTS
from tests.messages import either, mentions

pytestmark = [pytest.mark.faults, pytest.mark.processes, pytest.mark.etcd]

SLOWLY = {"REGATTA_FAULTS_PAUSE": "0.1"}

RECOVERED = messages.PSERVER_RECOVERED_FROM_TRAINER, messages.PSERVER_RECOVERED_FROM_CHECKPOINT


def judge(cluster: Cluster) -> None:
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    assert verdict.of_checkpoints(cluster, events) == []


@pytest.mark.parametrize("k", range(1, 1 + len(POINTS)))
def test_checkpoint_crash_at_step_k(job, etcd, k):
    """The process is killed at a point of its third checkpoint.

    All points of the file's lifetime without processes, each with and without a power loss, are in
    tests/runtime/checkpoint.
    """
    cluster = job(etcd, launch=False, trainers=1, tasks=80, checkpoint_seconds=0.02, variables=SLOWLY)
    cluster.start("master-0")
    cluster.start("pserver-0", **{CRASH_AT: POINTS[k - 1]})
    cluster.start("trainer-0")
    cluster.await_count("crashes", 1)
    judge(cluster)
    assert re.search(either(*RECOVERED), cluster.portal.output("pserver-0.2"))
    assert not mentions(cluster.portal.output("pserver-0.2"), messages.CHECKPOINT_UNUSABLE_THEN)


@pytest.mark.invariant("Each recorded checkpoint is complete, even if its pserver is killed while it writes.")
def test_checkpoint_hammer(job, etcd):
    """W3: as many checkpoints as the disk allows, and the process is killed at a random point."""
    cluster = job(etcd, mode="async", tasks=100, passes=3, checkpoint_seconds=0.05, variables=SLOWLY)
    chance = random.Random(3)
    for kills in range(1, 4):
        cluster.await_count("recorded", 2 + chance.randrange(4), f"pserver-0.{kills}")
        cluster.kill("pserver-0")
    judge(cluster)
    assert len(cluster.runs["pserver-0"]) == 4


def test_disk_full(job, etcd):
    """The checkpoint fails and is reported, training continues, and the next succeeds when there is space again."""
    cluster = job(etcd, tasks=150, checkpoint_seconds=0.05, variables=SLOWLY)
    cluster.await_count("recorded", 2)
    full = cluster.directory / "checkpoints" / DISK_FULL
    full.touch()
    cluster.until(lambda: any("No space left" in text for text in cluster.portal.events()), "it is on the timeline")
    cluster.await_count("applied", cluster.count("applied") + 5)
    full.unlink()
    cluster.await_count("recorded", cluster.count("recorded") + 1)
    judge(cluster)
    assert len(cluster.runs["pserver-0"]) == 1
    assert any(mentions(text, messages.CHECKPOINT_FAILED_CONTINUES) for text in cluster.portal.events())


def test_corrupt_checkpoint(job, etcd):
    """Bits of the newest checkpoint are damaged unnoticed: the one before counts."""
    cluster = job(etcd, tasks=120, checkpoint_seconds=0.05, variables=SLOWLY)
    cluster.await_count("recorded", 3)
    run = cluster.freeze("pserver-0")
    newest = [event for event in cluster.history() if event.kind == "recorded"][-1]["file"]
    rot(next(path for path in (cluster.directory / "checkpoints").rglob(newest) if path.parent.name != ARCHIVE))
    cluster.kill("pserver-0")
    cluster.thaw(run)
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []
    output = cluster.portal.output("pserver-0.2")
    assert mentions(output, messages.CHECKPOINT_UNUSABLE_THEN)
    assert re.search(either(*RECOVERED), output)


def rot(file: Path) -> None:
    """Write other bytes under the same name; other links to the file keep the old ones."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    file.write_bytes(data)
