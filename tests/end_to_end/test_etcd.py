"""A portal whose jobs use an etcd with authentication."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jobs.messages import jobs as job_messages
from runtime import contract
from runtime.coordination import connect
from runtime.coordination.base import CoordinationStore
from runtime.messages import training as training_messages
from tests.end_to_end.support import code, processes
from tests.end_to_end.support.portal import RunningPortal, is_of_a_replica
from tests.messages import mentions
from tests.servers.etcd_server import EtcdServer
from tests.waiting import until

pytestmark = [pytest.mark.etcd, pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 60.0


@pytest.fixture(scope="module")
def site(guarded: EtcdServer) -> str:
    return guarded.url_of_root("/site")


@pytest.fixture
def root(site: str) -> Iterator[CoordinationStore]:
    store = connect(site)
    yield store
    store.close()


@pytest.fixture(scope="module")
def running_portal(site: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    with RunningPortal(
        tmp_path_factory.mktemp("running_portal") / "data", REGATTA_COORDINATION=site
    ).open() as running_portal:
        yield running_portal


def test_the_example_is_trained_though_etcd_is_killed_meanwhile_and_leaves_nothing_in_it(
    running_portal: RunningPortal, guarded: EtcdServer, root: CoordinationStore
) -> None:
    account = f"root:{guarded.password}"
    with running_portal.client() as portal:
        job = portal.jobs.submit(portal.examples.get("digits"), namespace=portal.namespaces.default())
        members = f"{contract.attempt_prefix(job.id, 1)}members/"
        until("the replicas are there", lambda: len(root.list(members).entries) >= 4, END_SECONDS, every=0.05)
        user = f"regatta-{job.id}-1"
        assert user in guarded.ctl("user", "list", account=account)
        _check_keys_and_rights(running_portal)
        guarded.kill()
        guarded.start()
        ended = portal.jobs.wait(job.id, END_SECONDS)
    assert (ended.state, ended.attempt) == ("SUCCEEDED", 1), ended
    until("the account is gone", lambda: user not in guarded.ctl("user", "list", account=account), 10)
    until("the keys are gone", lambda: not root.list("/").entries, 10)


def test_a_job_on_etcd_continues_after_its_server_and_its_master_are_killed(
    running_portal: RunningPortal,
) -> None:
    with running_portal.client() as portal:
        job = portal.jobs.submit(code.slow("kill-in-etcd"))

        def trains() -> bool:
            return any(line.text == "step 5" for line in portal.jobs.logs.read(job.id, replica="trainer-1"))

        until("it trains", trains, END_SECONDS)
        for process in [*running_portal.replica(job.id, "pserver-0"), *running_portal.replica(job.id, "master-0")]:
            processes.kill(process.pid)
        again = "was terminated by signal 9 (SIGKILL); restarted"
        until(
            "both are back", lambda: sum(again in one["text"] for one in portal.jobs.events(job.id)) == 2, END_SECONDS
        )
        running_portal.release(job.id)
        ended = portal.jobs.wait(job.id, END_SECONDS)
        messages = [event["text"] for event in portal.jobs.events(job.id)]
    assert (ended.state, ended.attempt, ended.why) == (
        "SUCCEEDED",
        1,
        job_messages.TRAINED(trainers=job_messages.TRAINER_COUNT(count=2)),
    ), messages
    for victim in ("pserver-0", "master-0"):
        assert any(
            mentions(
                text,
                job_messages.RESTARTED_BECAUSE,
                ending=f"{victim} {training_messages.TERMINATED_BY_SIGNAL(signal='9 (SIGKILL)')}",
            )
            for text in messages
        ), messages


def _check_keys_and_rights(running_portal: RunningPortal) -> None:
    """No process of a job has etcd's root credentials, and no user code has etcd's address."""
    of_replicas = [process for process in running_portal.processes() if is_of_a_replica(process)]
    assert of_replicas
    for process in of_replicas:
        assert "root:" not in process.environment.get("REGATTA_COORDINATION", "")
    trainers = [one for one in of_replicas if one.environment.get("REGATTA_ROLE") == "trainer"]
    code = [one for one in trainers if "REGATTA_INGEST_TOKEN" not in one.environment]
    assert code
    assert not any("REGATTA_COORDINATION" in one.environment for one in code)
