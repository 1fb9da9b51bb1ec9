"""Simulated pods: placed on the emptiest node, waiting where none fits, and gone some time after they are stopped."""

from __future__ import annotations

import random

from jobs.elastic.policy.model import Amounts, Node, Service
from jobs.elastic.simulation.event_loop import EventLoop
from jobs.elastic.simulation.pod_scheduler import PodScheduler
from jobs.elastic.simulation.pods import Pod, PodState, SimulatedService
from jobs.elastic.simulation.workload import Timing

TWO = Amounts(2000, 100)


class Recorder:
    def __init__(self) -> None:
        self.events: list[str] = []

    def pod_queued(self, pod: Pod) -> None:
        self.events.append("queued")

    def pod_runs(self, pod: Pod) -> None:
        self.events.append(f"runs on {pod.node_name}")

    def pod_stops(self, pod: Pod, *, ran: bool) -> None:
        self.events.append("stops after a run" if ran else "stops")

    def pod_removed(self, pod: Pod) -> None:
        self.events.append("removed")


class Cluster:
    def __init__(self, *cores: int) -> None:
        self.loop, self.recorder = EventLoop(), Recorder()
        nodes = [Node(f"n{number}", Amounts(1000 * count, 64_000)) for number, count in enumerate(cores)]
        timing = Timing(start=(1.0, 1.0), stop=(2.0, 2.0))
        self.scheduler = PodScheduler(nodes, self.loop, timing, random.Random(0), self.recorder)
        self.owner = SimulatedService(name="web", service=Service("web", TWO, 0), history=[])

    def create(self, name: str = "") -> Pod:
        pod = self.owner.add(TWO)
        self.scheduler.create(pod, self.loop.now, name)
        return pod

    def run(self, until: float) -> list[str]:
        self.loop.run(until, lambda: False, lambda _now: None)
        return self.recorder.events


def test_a_pod_is_placed_on_the_node_with_the_most_free_cores() -> None:
    cluster = Cluster(2, 4)
    cluster.create()
    assert cluster.run(10.0) == ["queued", "runs on n1"]


def test_a_pod_goes_to_the_node_that_was_chosen_if_it_fits_there() -> None:
    cluster = Cluster(2, 8)
    cluster.create("n0")
    cluster.create("n0")
    assert cluster.run(10.0) == ["queued", "runs on n0", "runs on n1"]


def test_a_pod_waits_until_the_one_in_its_place_is_gone() -> None:
    cluster = Cluster(2)
    first, second = cluster.create(), cluster.create()
    assert cluster.run(5.0) == ["queued", "queued", "runs on n0"]
    cluster.scheduler.stop(first, 5.0)
    assert cluster.owner.leaving == {"n0": TWO} and not cluster.owner.bound
    assert cluster.run(20.0)[3:] == ["stops after a run", "removed", "runs on n0"]
    assert second.state is PodState.RUNNING and dict(cluster.owner.bound) == {"n0": 1}


def test_a_pod_that_waits_is_removed_at_once_and_never_placed() -> None:
    cluster = Cluster(1)
    pod = cluster.create()
    cluster.run(5.0)
    cluster.scheduler.stop(pod, 5.0)
    assert pod.state is PodState.GONE and not cluster.owner.pods
    assert cluster.run(20.0) == ["queued"]


def test_a_pod_that_is_stopped_twice_stops_once() -> None:
    cluster = Cluster(2)
    pod = cluster.create()
    cluster.run(0.5)
    cluster.scheduler.stop(pod, 0.5)
    cluster.scheduler.stop(pod, 0.5)
    assert cluster.run(20.0) == ["queued", "stops", "removed"]
