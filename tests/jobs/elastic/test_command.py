"""``python -m jobs.elastic simulate``: all policies are compared under equal conditions."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.elastic import __main__ as command
from jobs.elastic.simulation import scenarios
from jobs.elastic.simulation.simulator import simulate
from jobs.elastic.simulation.workload import Timing


def test_every_policy_is_simulated_with_the_same_reaction_time(monkeypatch: pytest.MonkeyPatch) -> None:
    timings: list[Timing] = []

    def record(workload: Any, policy: Any, timing: Timing, seed: int) -> Any:
        timings.append(timing)
        return simulate(workload, policy, timing, seed)

    monkeypatch.setattr(command, "simulate", record)
    for policy in scenarios.POLICIES:
        assert command.main(["simulate", "--scenario", "published-1", "--until", "20", "--policy", policy]) == 0
    assert timings == [scenarios.TIMING] * len(scenarios.POLICIES)
