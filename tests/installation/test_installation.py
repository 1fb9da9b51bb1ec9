"""An installation from nothing by the commands of docs/operations.md, and what its page promises to the operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regatta import Client, Job
from tests.installation import platform_jobs, upgrades
from tests.installation.faults import load, measurements
from tests.installation.installation import SYSTEM, Installation
from tests.installation.site import Prometheus, remove_all
from tests.waiting import until

pytestmark = [pytest.mark.kube, pytest.mark.alone, pytest.mark.timeout(1800)]

_JOB_SECONDS = 300.0
_PORTAL = ("portal-web", "portal-worker", "portal-sweep")


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A running installation. A test that ends it has to install it again."""
    found = Installation(tmp_path_factory.mktemp("installation"))
    found.install()
    yield found
    found.uninstall()
    remove_all(found.kubectl)
    found.close()


def succeeded(installation: Installation, specification: dict[str, object]) -> Job:
    """Submit a job and return it after its end."""
    with installation.client() as portal:
        job = portal.jobs.submit(specification)
        ended = portal.jobs.wait(job.id, _JOB_SECONDS)
        assert ended.state == "SUCCEEDED", story(portal, ended)
    return ended


def story(portal: Client, job: Job) -> str:
    """Return what happened to a job, for the message of a failed test."""
    events = [f"{event['time']} {event['state']} {event['text']}" for event in portal.jobs.events(job.id)]
    lines = [f"{line.time} {line.replica} {line.stream}: {line.text}" for line in portal.jobs.logs.tail(job.id, 100)]
    return "\n".join([f"{job.state}: {job.why}", *events, *lines])


@contextmanager
def training(installation: Installation, name: str) -> Iterator[Job]:
    """Run a job that trains without end. The block begins when both trainers print steps; then it is cancelled."""
    with installation.client() as portal:
        job = portal.jobs.submit(load.specification(name))
        try:
            until("both trainers print steps", lambda: len(processes(installation, job)) == 2, _JOB_SECONDS, every=0.5)
            yield job
        finally:
            portal.jobs.cancel(job.id)
            portal.jobs.wait(job.id, _JOB_SECONDS)


def steps_of(installation: Installation, job: Job) -> list[measurements.Step]:
    with installation.client() as portal:
        return measurements.steps([line.text for line in portal.jobs.logs.read(job.id)])


def processes(installation: Installation, job: Job) -> set[str]:
    return {step.process for step in steps_of(installation, job)}


def goes_on(installation: Installation, job: Job) -> None:
    """Wait until the job has made further steps, and assert that no line of it is missing or doubled."""
    before = len(steps_of(installation, job))
    until("the job makes steps", lambda: len(steps_of(installation, job)) > before + 8, 120, every=0.5)
    found = steps_of(installation, job)
    assert measurements.continuity(found) == measurements.Continuity(0, 0, 0)


@pytest.mark.invariant("The commands of the installation page install a portal that runs the example job.")
def test_the_commands_of_the_page_install_a_portal_that_runs_the_example_job(
    installation: Installation, tmp_path: Path
) -> None:
    with installation.client() as portal:
        job = succeeded(installation, platform_jobs.digits(portal))
        portal.jobs.artifacts.download(job.id, "model.npz", tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as model:
        assert model.files


def test_the_system_page_finds_every_part_of_a_new_installation_in_order(installation: Installation) -> None:
    def entries() -> list[dict[str, Any]]:
        with installation.http(Authorization=f"Bearer {installation.token()}") as http:
            return list(http.get("/api/v1/admin/system").raise_for_status().json()["entries"])

    def in_order() -> list[str]:
        return sorted(entry["name"] for entry in entries() if entry["status"] == "ok")

    expected = ["web", "web", "worker", "worker", "sweep", "sweep", "database", "redis", "etcd", "kubernetes"]
    until("all parts are in order", lambda: not Counter(expected) - Counter(in_order()), 90, every=1, story=entries)


@pytest.mark.invariant("Prometheus scrapes every process of the portal through the network policies.")
def test_prometheus_scrapes_every_process_through_the_policies(installation: Installation) -> None:
    prometheus = Prometheus(installation.kubectl, installation.images["prometheus"])
    prometheus.start()

    def up() -> set[str]:
        return {target["labels"]["app"] for target in prometheus.targets() if target["health"] == "up"}

    until(
        "all targets are up", lambda: up() == {*_PORTAL, "paddlejob-controller"}, 90, every=1, story=prometheus.targets
    )


def test_a_prometheus_in_another_namespace_scrapes_nothing(installation: Installation) -> None:
    prometheus = Prometheus(installation.kubectl, installation.images["prometheus"], "monitoring-elsewhere")
    prometheus.start()

    def errors() -> list[str]:
        return [target["lastError"] for target in prometheus.targets()]

    until("all targets have been tried", lambda: errors() and all(errors()), 90, every=1, story=errors)
    assert all("timeout" in error or "deadline exceeded" in error for error in errors())


@pytest.mark.invariant("A job's pod reaches the ports that the documentation lists, and no others.")
def test_a_pod_of_a_job_reaches_the_agents_port_and_the_gateway_and_nothing_else(installation: Installation) -> None:
    open_targets = {
        "agents": (f"portal-agents.{SYSTEM}", 8001),
        "coordination gateway": (f"coordination-gateway.{SYSTEM}", 2379),
    }
    closed_targets = {
        "pages": (f"portal.{SYSTEM}", 8000),
        "postgresql": (f"postgresql.{SYSTEM}", 5432),
        "redis": (f"redis.{SYSTEM}", 6379),
        **{f"etcd {port}": (f"etcd-0.etcd.{SYSTEM}", port) for port in (2379, 2380, 2381)},
        "api server": ("kubernetes.default", 443),
        "cloud metadata": ("169.254.169.254", 80),
        **{f"{name} metrics": (installation.pod_address(name), 9090) for name in _PORTAL},
        "controller metrics": (installation.pod_address("paddlejob-controller"), 8080),
        "kubelet": (installation.node_address(), 10250),
        "ingress": (installation.ingress.address(), 443),
    }
    job = succeeded(installation, platform_jobs.reach({**open_targets, **closed_targets}))
    with installation.client() as portal:
        found = platform_jobs.result(portal, job)
    assert {name for name, answer in found.items() if answer == "open"} == set(open_targets)
    assert set(found) == {*open_targets, *closed_targets}


@pytest.mark.invariant("A job without an account cannot command the coordination store.")
def test_a_job_cannot_command_the_coordination_store_without_an_account(installation: Installation) -> None:
    job = succeeded(installation, platform_jobs.takeover(f"coordination-gateway.{SYSTEM}:2379"))
    with installation.client() as portal:
        answers = platform_jobs.result(portal, job)
    assert len(answers) == 7
    assert "obeyed" not in answers.values()


@pytest.mark.invariant("The portal looks into pods and runs commands in them without credentials of the cluster.")
def test_a_person_looks_into_a_pod_and_runs_a_command_in_it(installation: Installation) -> None:
    with training(installation, "looked-into") as job:
        with installation.client() as portal:
            looked = portal.jobs.stacks(job.id)
        answered = {replica["replica"] for replica in looked["replicas"] if replica["state"] == "running"}
        assert {"trainer-0", "trainer-1", "pserver-0", "pserver-1"} <= answered, looked
        command = ("exec", job.id, "--replica", "trainer-1", "--", "sh", "-c", "cat; id -u; ls train.py; exit 3")
        done = installation.command(*command, text="from here\n")
        assert (done.returncode, done.stdout.splitlines()[::2]) == (3, ["from here", "train.py"]), done.stderr
        assert int(done.stdout.splitlines()[1]) > 0
        goes_on(installation, job)


@pytest.mark.lengthy
@pytest.mark.invariant("An upgrade with a migration loses no line of a running job.")
def test_an_upgrade_with_a_migration_keeps_a_running_job(installation: Installation) -> None:
    with training(installation, "upgrade") as job:
        upgrades.to(installation, "0.2.0")
        assert installation.image_of("portal-web").endswith(installation.tag_of("0.2.0"))
        assert upgrades.migrated(installation)
        goes_on(installation, job)


@pytest.mark.lengthy
@pytest.mark.invariant("A rotation of all passwords loses no line of a running job.")
def test_a_rotation_of_all_passwords_keeps_a_running_job(installation: Installation) -> None:
    before = installation.secrets()
    rotate = installation.page.section("Rotate secrets").command("--rotate secrets.json")
    with training(installation, "rotation") as job:
        installation.run(rotate)
        installation.run("bash rotate.sh && cp new-secrets.json secrets.json")
        until("the portal answers", installation.answers, 60)
        goes_on(installation, job)
    changed = {name for name, value in installation.secrets().items() if value != before[name]}
    assert {"POSTGRES_PASSWORD", "REDIS_PASSWORD", "ETCD_PASSWORD"} <= changed


@pytest.mark.lengthy
@pytest.mark.invariant("A restored backup has the jobs, logs and models that were deleted after it.")
def test_a_restored_backup_has_what_was_deleted_after_it(installation: Installation, tmp_path: Path) -> None:
    with installation.client() as portal:
        job = succeeded(installation, platform_jobs.digits(portal))
        lines = [line.text for line in portal.jobs.logs.read(job.id)]
        portal.jobs.artifacts.download(job.id, "model.npz", tmp_path / "before.npz")
        installation.back_up()
        portal.jobs.delete(job.id)
    installation.run(
        "kubectl -n regatta-system exec deployment/portal-sweep -c sweep -- rm -rf /var/lib/regatta/storage"
    )

    installation.restore()
    until("the portal answers", installation.answers, 120)
    with installation.client() as portal:
        assert portal.jobs.get(job.id).state == "SUCCEEDED"
        assert [line.text for line in portal.jobs.logs.read(job.id)] == lines
        portal.jobs.artifacts.download(job.id, "model.npz", tmp_path / "after.npz")
    assert (tmp_path / "after.npz").read_bytes() == (tmp_path / "before.npz").read_bytes()
