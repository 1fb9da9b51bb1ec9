"""Who may run jobs on a machine that cannot isolate them, and which user ids attempts get."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.backends import isolation, uids
from jobs.backends.base import AttemptRef, LaunchFailed, LaunchPlan
from jobs.backends.isolation import Policy
from jobs.backends.local import LocalBackend
from runtime.isolation.probe import Isolation, Mode

UIDS = range(2_000_000_000, 2_000_000_010)


@dataclass(frozen=True)
class Person:
    is_admin: bool


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Isolation:
    """One without namespaces."""
    found = Isolation(Mode.NONE, ("user namespaces do not work: allow them",))
    monkeypatch.setattr(isolation, "_probed", lambda uid, data: found)
    settings.LOCAL_ISOLATION = "auto"
    return found


def test_without_isolation_only_admins_run_jobs(machine: Isolation) -> None:
    assert "only platform admins" in isolation.refusal(Person(is_admin=False))
    assert "allow them" in isolation.refusal(Person(is_admin=False))
    assert not isolation.refusal(Person(is_admin=True))


def test_the_settings_can_let_everybody_in(machine: Isolation, settings: Any) -> None:
    settings.LOCAL_ISOLATION = "none"
    assert not isolation.refusal(Person(is_admin=False))


def test_a_demand_that_cannot_be_met_keeps_the_portal_from_starting(machine: Isolation, settings: Any) -> None:
    assert not isolation.start_problem()
    settings.LOCAL_ISOLATION = "namespaces"
    assert "allow them" in isolation.start_problem()


def test_the_backend_launches_nothing_of_others_without_isolation(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path, policy=lambda: Policy(False, None, 0, "No strangers."))
    plan = LaunchPlan(AttemptRef("job", "attempt", 1), "ns", tmp_path, (), timedelta(1), 1)
    with pytest.raises(LaunchFailed, match=r"No strangers\."):
        backend.launch(plan)
    backend.launch(replace(plan, trusted=True))


def attempt(directory: Path, name: str) -> Path:
    (directory / name).mkdir()
    return directory / name


def test_an_attempt_keeps_its_user_id_and_shares_it_with_no_other(tmp_path: Path) -> None:
    attempts = [attempt(tmp_path, str(number)) for number in range(len(UIDS))]
    with ThreadPoolExecutor(4) as pool:
        chosen = list(pool.map(lambda one: uids.of(one, UIDS), attempts))
    assert sorted(chosen) == list(UIDS)
    assert [uids.of(one, UIDS) for one in attempts] == chosen
    with pytest.raises(OSError, match="REGATTA_LOCAL_UIDS"):
        uids.of(attempt(tmp_path, "one more"), UIDS)


def test_an_id_that_was_cleaned_up_is_not_the_next_one(tmp_path: Path) -> None:
    first = attempt(tmp_path, "first")
    used = uids.of(first, UIDS)
    (first / uids.UID_FILE).unlink()
    first.rmdir()
    assert uids.of(attempt(tmp_path, "second"), UIDS) != used
