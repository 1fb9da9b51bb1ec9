"""Meters of a simulation: each measures one subject."""

from __future__ import annotations

import pytest

from jobs.elastic.policy.model import Amounts, Node
from jobs.elastic.simulation.meters import ServiceMeter, UsageMeter, WorkMeter


def test_utilisation_counts_gpus_once_a_pod_has_requested_one() -> None:
    usage = UsageMeter([Node("n0", Amounts(4000, 1, 2))])
    usage.add(Amounts(1000), 1)
    assert usage.utilisation() == pytest.approx(0.25)
    usage.add(Amounts(0, 0, 1), 1)
    assert usage.utilisation() == pytest.approx(0.5)


def test_mean_utilisation_is_weighted_by_time() -> None:
    usage = UsageMeter([Node("n0", Amounts(4000, 1))])
    usage.pass_time(5.0)
    usage.add(Amounts(4000), 1)
    usage.pass_time(15.0)
    assert usage.mean_utilisation(20.0) == pytest.approx(0.75)


def test_work_is_that_of_all_jobs_together() -> None:
    work = WorkMeter()
    work.set("a", 2)
    work.set("b", 3)
    work.pass_time(2.0)
    work.set("a", 0)
    work.pass_time(1.0)
    assert work.seconds == pytest.approx(13.0)


def test_a_service_recovers_once_it_has_the_replicas_of_its_demand() -> None:
    meter = ServiceMeter()
    meter.demand(3, 10.0)
    meter.serve(2, 12.0)
    assert meter.recoveries(13.0) == [3.0] and not meter.always_recovered
    meter.serve(3, 14.0)
    assert meter.recoveries(20.0) == [4.0] and meter.always_recovered


def test_a_demand_that_changes_before_it_is_met_was_missed() -> None:
    meter = ServiceMeter()
    meter.demand(3, 10.0)
    meter.demand(0, 15.0)
    assert meter.recoveries(20.0) == [5.0] and not meter.always_recovered
