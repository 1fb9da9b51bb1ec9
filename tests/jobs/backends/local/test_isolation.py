"""Permission to run jobs on a machine that cannot isolate them, and the user ids of attempts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.backends.base import AttemptRef, LaunchFailed, LaunchPlan, ReplicaPlan
from jobs.backends.local import backend as local_backend
from jobs.backends.local import isolation, uids
from jobs.backends.local.backend import LocalBackend
from jobs.backends.local.isolation import Policy
from jobs.messages import cluster as cluster_messages
from runtime import contract
from runtime.contract import AgentOrder
from runtime.isolation.delegation import Found, Home
from runtime.isolation.probe import Isolation, Mode
from runtime.messages import isolation as isolation_messages
from tests import cgroup_tree
from tests.messages import mentions

UIDS = range(2_000_000_000, 2_000_000_010)


@dataclass(frozen=True)
class Person:
    is_admin: bool


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Isolation:
    """A machine without namespaces."""
    found = Isolation(Mode.NONE, ("user namespaces do not work: allow them",))
    monkeypatch.setattr(isolation, "_probed", lambda uid, data: found)
    settings.LOCAL_ISOLATION = "auto"
    return found


@pytest.mark.invariant("Without isolation, only jobs of platform administrators run, unless the settings allow others.")
def test_without_isolation_only_admins_run_jobs(machine: Isolation) -> None:
    assert mentions(isolation.refusal(Person(is_admin=False)), cluster_messages.ADMINS_ONLY_WITHOUT_ISOLATION)
    assert "allow them" in isolation.refusal(Person(is_admin=False))
    assert not isolation.refusal(Person(is_admin=True))


@pytest.mark.invariant("Without isolation, only jobs of platform administrators run, unless the settings allow others.")
def test_the_settings_can_let_everybody_in(machine: Isolation, settings: Any) -> None:
    settings.LOCAL_ISOLATION = "none"
    assert not isolation.refusal(Person(is_admin=False))


def test_a_demand_that_cannot_be_met_keeps_the_portal_from_starting(machine: Isolation, settings: Any) -> None:
    assert not isolation.start_problem()
    settings.LOCAL_ISOLATION = "namespaces"
    assert "allow them" in isolation.start_problem()


@pytest.mark.invariant("Without isolation, only jobs of platform administrators run, unless the settings allow others.")
def test_the_backend_launches_nothing_of_others_without_isolation(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path, policy=lambda: Policy(False, None, 0, "No strangers."))
    plan = LaunchPlan(AttemptRef("job", "attempt", 1), "ns", tmp_path, (), timedelta(1), 1)
    with pytest.raises(LaunchFailed, match=r"No strangers\."):
        backend.launch(plan)
    backend.launch(replace(plan, trusted=True))


@pytest.mark.parametrize("network", ["user", ""])
def test_every_replica_of_an_attempt_is_on_its_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, network: str
) -> None:
    orders: list[AgentOrder] = []
    monkeypatch.setattr(local_backend, "_start_agents", orders.extend)
    backend = LocalBackend(tmp_path / "attempts", policy=lambda: Policy(True, None, 0, network=network))
    roles = ("master", "pserver", "trainer")
    replicas = tuple(ReplicaPlan(f"{role}-0", role, 0, ("true",), {}, 1, 0) for role in roles)
    (tmp_path / "bundle").mkdir()
    backend.launch(LaunchPlan(AttemptRef("job", "attempt", 1), "ns", tmp_path / "bundle", replicas, timedelta(1), 1))
    assert [order["environment"].get(contract.NETWORK, "") for order in orders] == [network] * len(roles)


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


def isolated(monkeypatch: pytest.MonkeyPatch, found: Found) -> None:
    """Simulate a machine that isolates jobs and has these cgroups."""
    monkeypatch.setattr(isolation, "_probed", lambda uid, data: Isolation(Mode.USER))
    monkeypatch.setattr(isolation, "_cgroups", lambda: found)


def test_the_cgroups_of_jobs_are_reported_at_the_start_and_to_admins(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.CLUSTER_BACKEND, settings.LOCAL_ISOLATION = "local", "auto"
    home = Home(Path("/sys/fs/cgroup/home"), frozenset({"memory"}))
    isolated(monkeypatch, Found(home, ("the kernel does not limit processes: do this",)))
    provided = isolation.provided()
    assert provided is not None
    assert provided.layers[-1] == isolation_messages.LAYER_CGROUP(limits=isolation_messages.MEMORY())
    assert provided.missing == ("the kernel does not limit processes: do this",)
    assert mentions(isolation.start_line(), isolation_messages.LAYER_CGROUP)
    assert isolation.policy().cgroups == home


def test_without_cgroups_jobs_run_all_the_same(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.CLUSTER_BACKEND, settings.LOCAL_ISOLATION = "local", "namespaces"
    isolated(monkeypatch, Found(None, ("no cgroup for each job: do that",)))
    assert not isolation.start_problem()
    assert not isolation.refusal(Person(is_admin=False))
    assert isolation.policy().cgroups is None
    assert "Missing: no cgroup for each job: do that." in isolation.start_line()


@pytest.mark.parametrize(
    ("isolated_by", "coordination", "problem", "why"),
    [
        ("auto", "", "", ""),
        ("none", "", "", "set REGATTA_LOCAL_ISOLATION to auto or namespaces"),
        ("auto", "etcd://here", "", "unset it"),
        ("auto", "", "network namespaces do not work: do this", "do this"),
    ],
)
def test_a_private_network_that_cannot_be_had_keeps_the_portal_from_starting(
    monkeypatch: pytest.MonkeyPatch, settings: Any, isolated_by: str, coordination: str, problem: str, why: str
) -> None:
    settings.CLUSTER_BACKEND, settings.LOCAL_ISOLATION, settings.LOCAL_NETWORK = "local", isolated_by, "private"
    settings.COORDINATION = coordination
    isolated(monkeypatch, Found(None, ()))
    monkeypatch.setattr(isolation, "_network_problem", lambda mode, uid, data: problem)
    assert (why in isolation.start_problem()) if why else not isolation.start_problem()
    # A portal of several processes has no such check: replicas must get no other network.
    assert isolation.policy().network == "user"


def test_a_private_network_needs_namespaces(machine: Isolation, settings: Any) -> None:
    settings.CLUSTER_BACKEND, settings.LOCAL_NETWORK = "local", "private"
    assert "allow them" in isolation.start_problem()


@pytest.mark.parametrize(("setting", "shown"), [("private", True), ("shared", False)])
def test_admins_see_whether_jobs_have_networks_of_their_own(
    monkeypatch: pytest.MonkeyPatch, settings: Any, setting: str, shown: bool
) -> None:
    settings.CLUSTER_BACKEND, settings.LOCAL_ISOLATION, settings.LOCAL_NETWORK = "local", "auto", setting
    isolated(monkeypatch, Found(None, ()))
    provided = isolation.provided()
    assert provided is not None
    assert (isolation_messages.LAYER_NETWORK() in provided.layers) is shown
    assert mentions(isolation.start_line(), isolation_messages.LAYER_NETWORK) is shown
    assert bool(isolation.policy().network) is shown


@cgroup_tree.needed
@pytest.mark.processes
def test_a_portal_makes_sweeps_and_removes_its_cgroup(tmp_path: Path, settings: Any) -> None:
    settings.CLUSTER_BACKEND, settings.DATA_DIR, settings.ATTEMPTS_DIR = "local", tmp_path, tmp_path / "attempts"
    assert isolation.prepare_cgroups() == ""
    home = isolation.policy().cgroups
    assert home is not None
    (home.path / "gone.trainer-0.1").mkdir()
    assert isolation.prepare_cgroups() == ""
    assert [path for path in home.path.iterdir() if path.is_dir()] == []
    isolation.remove_cgroups()
    assert not home.path.exists()
