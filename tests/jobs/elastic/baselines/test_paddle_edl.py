"""The autoscaler of 2017: its own unit tests, and the fault that its sweeps need not terminate."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.elastic.baselines import paddle_edl
from jobs.elastic.baselines.paddle_edl import Resources
from jobs.elastic.policy.model import Amounts, Cluster, Core, Job, Node
from jobs.spec.quantities import cores, memory

# The published scaler's 22 unit tests (PaddlePaddle/cloud, Apache-2.0): inputs and expected results.
CASES = json.loads(Path(__file__).with_name("published_scaler.json").read_text(encoding="utf-8"))


def resources(of: dict[str, Any]) -> Resources:
    idle = {name: (cpu, of["nodesMem"][name]) for name, cpu in of["nodesCPU"].items()}
    asked = Amounts(of["CPUReq"], of["MemReq"], of["GPULimit"])
    return Resources(asked, Amounts(of["CPUTotal"], of["MemTotal"], of["GPUTotal"]), idle)


def job(of: dict[str, Any]) -> Job:
    """Units as published: a thousandth of a core and 10**6 bytes, rounded up."""
    asked = of["cpu"]
    cpu = memory(asked) * 1000 if asked.endswith("Mi") else int(cores(asked) * 1000)
    need = Amounts(cpu, -(-memory(of["mem"]) // 10**6), int(of["gpu"]))
    return Job(of["name"], of["min"], of["max"], need, pending=of["p"])


@pytest.mark.parametrize("case", CASES, ids=[case["test"] for case in CASES])
def test_the_published_unit_tests_pass(case: dict[str, Any]) -> None:
    at, one, load = resources(case["resource"]), job(case["job"]), case["maxLoad"]
    if case["kind"] == "all":
        assert paddle_edl.scale_all(at, [one], load)["name"] == case["expected"]
    else:
        scale = paddle_edl.scale_down if case["scaleDown"] else paddle_edl.scale_up
        assert scale(at, one, case["curDiff"], load) == case["expected"]


@pytest.mark.parametrize(("least", "most", "size", "expected"), [(1, 2, 2, 1), (1, 2, 1, 0), (1, 3, 2, 0.5)])
def test_fulfilment(least: int, most: int, size: int, expected: float) -> None:
    assert paddle_edl.fulfilment(Job("a", least, most, Amounts(), pending=size)) == expected


def test_the_least_fulfilled_comes_first_and_ties_go_by_what_is_asked() -> None:
    sizes = [("a", 1, 2, 2), ("b", 1, 20, 2), ("c", 1, 10, 2), ("d", 1, 1, 2)]
    jobs = [Job(name, least, most, Amounts(0, 0, 1), pending=size) for name, least, most, size in sizes]
    assert [each.key for each in paddle_edl.in_order(jobs)] == ["b", "c", "a"]
    needs = {"a": Amounts(1, 1, 1), "b": Amounts(1, 1), "c": Amounts(10, 1), "d": Amounts(1, 2)}
    tied = [Job(name, 1, 2, need, pending=1) for name, need in needs.items()]
    assert [each.key for each in paddle_edl.in_order(tied)] == ["b", "d", "c", "a"]


def one_gpu_job() -> tuple[Resources, list[Job]]:
    at = Resources(Amounts(0, 0, 9), Amounts(100_000, 100_000, 10), {"node0": (99_999, 99_999)})
    return at, [Job("a", 1, 3, Amounts(1000, 10, 1), pending=1)]


def test_its_sweeps_are_periodic_with_gpus() -> None:
    """It may use all GPUs and gives up those above 97 %: up and down in every sweep, without end."""
    at, jobs = one_gpu_job()
    before = at.requested
    assert list(islice(paddle_edl.sweeps(at, jobs, 0.97), 500)) == [{"a": 0}] * 500
    assert at.requested == before


def test_periodic_sweeps_are_bounded_here() -> None:
    assert paddle_edl.scale_all(*one_gpu_job()) == {"a": 0}


small = st.integers(0, 6)
needs = st.builds(Amounts, small, small, st.integers(0, 2))
sized_jobs = st.builds(
    lambda least, more, need, size: Job("", least, least + more, need, pending=size), small, small, needs, small
)


@given(jobs=st.lists(sized_jobs, max_size=6), nodes=st.lists(st.tuples(small, small), max_size=3), there=needs)
def test_sweeps_that_are_not_made_would_have_changed_nothing(
    jobs: list[Job], nodes: list[tuple[int, int]], there: Amounts
) -> None:
    named = [replace(job, key=str(number)) for number, job in enumerate(jobs)]

    def at() -> Resources:
        idle = {f"n{number}": free for number, free in enumerate(nodes)}
        return Resources(Amounts(3, 3, 1), there.times(4), idle)

    *_, last = islice(paddle_edl.sweeps(at(), named, 0.97), paddle_edl.MOST_SWEEPS)
    assert paddle_edl.scale_all(at(), named) == last


def test_a_period_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    scale_up = paddle_edl.scale_up
    monkeypatch.setattr(paddle_edl, "scale_up", lambda *given: (made.append(1), scale_up(*given))[1])
    paddle_edl.scale_all(*one_gpu_job())
    assert len(made) == 2


def test_a_tick_grows_into_idle_cores_up_to_the_load() -> None:
    nodes = [Node(name, Amounts(10_000, 10_000)) for name in ("n0", "n1")]
    running = Job("a", 1, 20, Amounts(1000, 10), started=0.0, trainers={"n0": 1}, running=1)
    decision = paddle_edl.published(Cluster(nodes, [running]), 0.0)
    assert decision.targets == {"a": 19}
    assert decision.grants == {"a": {"": 18}}


def test_a_job_without_any_trainer_takes_them_from_others_only_once_the_load_is_exceeded() -> None:
    """The published way to free capacity: requests of waiting pods count as used."""
    big = Job("a", 1, 20, Amounts(1000, 10), started=0.0, trainers={"n0": 9}, running=9)
    small = Job("b", 2, 20, Amounts(1000, 10), started=0.0, pending=2, waiting=Amounts(2000, 20))
    decision = paddle_edl.published(Cluster([Node("n0", Amounts(10_000, 10_000))], [big, small]), 0.0)
    assert decision.victims == {"a": {"": 2}}


def test_jobs_are_launched_whole_as_they_come() -> None:
    job = Job("a", 2, 60, Amounts(5000, 10), Core(Amounts(1000), Amounts(4000), 3), first=15)
    assert len(paddle_edl.published(Cluster([], [job]), 0.0).launches["a"].trainers) == 15
    launched = paddle_edl.fixed(Cluster([], [job]), 0.0).launches["a"]
    assert (len(launched.masters), len(launched.servers), len(launched.trainers)) == (1, 3, 60)
