"""Whole workloads under several faults in turn. W3 is in ``test_storage.py``, W5 in ``test_data_faults.py``."""

from __future__ import annotations

import random

import numpy as np
import pytest

from runtime.contract import EXIT_RESTART
from tests.faults import invariants
from tests.faults.cluster import Cluster
from tests.faults.recording import verdict
from tests.faults.recording.history import of_kind
from tests.faults.workloads import squared_error

pytestmark = [pytest.mark.faults, pytest.mark.processes, pytest.mark.etcd]

TRAINERS = ("trainer-0", "trainer-1", "trainer-2", "trainer-3")


@pytest.mark.invariant(
    "No task is lost, dispatched twice or counted twice, even if trainers and the master are killed."
)
def test_w1_the_queue_under_kills_of_everybody(job, etcd):
    cluster = job(
        etcd, workload="queue", pservers=0, trainers=4, tasks=50, passes=6, variables={"REGATTA_FAULTS_PAUSE": "0.1"}
    )
    chance = random.Random(1)
    for number in range(4):
        cluster.await_count("finished", 15 * (number + 1))
        cluster.kill(chance.choice(TRAINERS) if number % 2 else "master-0")
    events = cluster.finish()
    assert verdict.of_tasks(cluster, events) == []
    assert invariants.never_stands_still(events, ["finished"], 2 * cluster.plan.lease) == []
    finished = {(event["pass_id"], event["task"]) for event in of_kind(events, "finished")}
    # A finish whose answer was lost with its trainer is not recorded; each kill may cost one.
    assert len(finished) >= 6 * 50 - 4


@pytest.mark.invariant(
    "The parameters are exactly the sum of the applied steps, after any loss, repetition, partition and crash."
)
@pytest.mark.parametrize("mode", ["sync", "async", "m_of_n(2)", "ssp(2)"])
def test_w2_the_bank_in_bad_weather(job, mode):
    cluster = job(mode=mode, trainers=3, pservers=2, tasks=240, variables={"REGATTA_FAULTS_PAUSE": "0.1"})
    cluster.await_count("pulled", 15)
    cluster.wires["trainer-0"]["pserver-0"].reset()
    cluster.wires["trainer-1"]["pserver-1"].weather.delay = 0.01
    cluster.kill("trainer-2")
    cluster.await_count("pulled", 5, "trainer-2.2")
    cluster.wires["trainer-1"]["pserver-1"].heal()
    events = cluster.finish()
    assert verdict.of_parameters(cluster, events) == []


def test_w4_trainers_come_and_go(job, etcd):
    """From one to eight and back to two."""
    cluster = job(etcd, trainers=1, tasks=160, passes=6, variables={"REGATTA_FAULTS_PAUSE": "0.1"})
    cluster.await_count("pulled", 5)
    for index in range(1, 8):
        cluster.start(f"trainer-{index}")
    for index in range(1, 8):
        cluster.await_count("pulled", 2, f"trainer-{index}")
    leaving = [cluster.dismiss(f"trainer-{index}") for index in range(2, 8)]
    cluster.until(lambda: all(run.ended for run in leaving), "six have left")
    events = cluster.finish()
    assert [run.code for run in leaving] == [EXIT_RESTART] * 6
    assert verdict.of_parameters(cluster, events) == []
    assert verdict.of_tasks(cluster, events) == []
    assert not any("failed" in text for text in cluster.portal.events()), "nobody is blamed who leaves"


def test_w6_a_training_under_faults_learns_what_one_process_learns(job):
    cluster = job(workload="regression", mode="sync", tasks=160, passes=6)
    cluster.await_count("pulled", 20)
    cluster.kill("trainer-1")
    cluster.await_count("pulled", 60)
    cluster.wires["trainer-0"]["pserver-0"].reset()
    events = cluster.finish()
    learned = of_kind(events, "ended")[-1]["weights"]
    assert np.abs(np.array(learned) - alone(cluster)).max() < 0.05
    assert cost_of(learned) < 1.05 * cost_of(alone(cluster)) + 1e-3


def records(tasks: int) -> np.ndarray:
    return np.array([[number, 1.0] for number in range(tasks)])


def alone(cluster: Cluster) -> np.ndarray:
    """The same training in one process: every pass, every record, one after the other."""
    weights = np.zeros(2)
    data = records(cluster.plan.tasks)
    for _pass in range(cluster.plan.passes):
        for row in data:
            weights -= 0.1 * squared_error(weights, row[None])[1]
    return weights


def cost_of(weights: object) -> float:
    return squared_error(np.array(weights), records(160))[0]
