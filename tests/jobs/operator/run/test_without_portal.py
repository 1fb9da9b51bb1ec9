"""A pod lost while the portal has no database: controller, backend, reconciler and ingest together."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from django.test import Client

from jobs.backends import factory
from jobs.backends.kubernetes import manifests
from jobs.backends.kubernetes.backend import KubernetesBackend
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.models import Attempt, Job, JobEvent, Replica
from jobs.operator.client.resources import JOBS
from jobs.operator.model import names
from jobs.reconcile import reconciler
from jobs.selectors import attempts
from jobs.streams import store
from portal.common.clock import now
from tests.contracts.backend_contract import make_plan
from tests.factories import make_attempt
from tests.jobs.conftest import Use
from tests.jobs.operator.api_servers import FaithfulServer
from tests.jobs.operator.run.test_controller import Bench

pytestmark = pytest.mark.django_db
TOKEN = "token-of-the-attempt"
PATIENCE = 8.0
SITE = manifests.Cluster(image="registry/runtime:1", replaces=True)


@dataclass
class Installation:
    """A controller and a portal with one running job of two trainers, on one API server."""

    bench: Bench
    job: Job
    attempt: Attempt

    def pod(self, replica: str) -> str:
        return manifests.pod_name(str(self.attempt.pk), replica)

    def starts(self) -> dict[str, str]:
        pods = {names.name_of(pod): pod["metadata"]["labels"] for pod in self.bench.server.of("Pod")}
        here = {replica: pods.get(self.pod(replica)) for replica in ("trainer-0", "trainer-1")}
        return {replica: labels[names.START_NUMBER_LABEL] for replica, labels in here.items() if labels}

    def lose(self, replica: str) -> None:
        self.bench.server.drop("Pod", "team", self.pod(replica))
        self.bench.run()

    def send(self, call: str, **body: Any) -> Any:
        return Client().post(
            f"/ingest/v1/attempts/{self.attempt.pk}/{call}",
            json.dumps({"replica": "trainer-1", **body}),
            content_type="application/json",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )

    def send_line(self, first: int, text: str, start_number: int) -> int:
        lines = [[1e9, "stdout", text]]
        return int(self.send("logs", first=first, lines=lines, start_number=start_number).status_code)


@pytest.fixture
def installation(submit: Callable[..., Job], use: Use, tmp_path: Path) -> Installation:
    return install(submit, use, tmp_path, SITE)


def install(submit: Callable[..., Job], use: Use, folder: Path, site: manifests.Cluster) -> Installation:
    bench = Bench(FaithfulServer())
    use(cast(Any, KubernetesBackend(cast(Any, bench.server), site)))
    job = submit()
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING, attempt=1, changed=now())
    job.refresh_from_db()
    attempt = make_attempt(job, token=TOKEN, created=now())
    for index in range(2):
        Replica.objects.create(
            attempt=attempt,
            name=f"trainer-{index}",
            role="trainer",
            index=index,
            state=ReplicaState.REGISTERED,
            registered=now(),
        )
    plan = replace(make_plan(folder, {}), ref=attempts.ref_of(job, attempt))
    bench.server.call("POST", JOBS.path("team"), manifests.paddle_job(plan, site))
    bench.run()
    bench.up()
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    bench.run()
    return Installation(bench, job, attempt)


@pytest.mark.invariant("A pod lost while the portal has no database is replaced, and its start adopted afterwards.")
def test_a_pod_lost_without_the_portal_is_replaced_and_adopted(installation: Installation) -> None:
    installation.send_line(1, "of start 1", 1)
    installation.lose("trainer-1")
    installation.bench.run(PATIENCE)
    assert installation.starts() == {"trainer-0": "1", "trainer-1": "2"}
    assert installation.send("begin", start_number=2).json()["code"] == "start_not_adopted"

    assert reconciler.reconcile(installation.job.pk) is JobState.RUNNING  # the portal is back
    row = Replica.objects.get(name="trainer-1")
    assert (row.start_number, row.restarts) == (2, 1)
    assert [event.text for event in JobEvent.objects.filter(kind="restarted")] == [
        "trainer-1 is gone; replaced by the cluster without the portal (1 of 3)."
    ]


def test_the_lines_of_both_starts_are_stored_once_and_in_order(installation: Installation) -> None:
    installation.send_line(1, "of start 1", 1)
    installation.lose("trainer-1")
    installation.bench.run(PATIENCE)
    installation.send_line(2, "of start 1 on a node that was cut off", 1)
    reconciler.reconcile(installation.job.pk)
    assert installation.send("begin", start_number=2).json()["logs"] == 2
    assert installation.send_line(3, "too late", 1) == 409
    assert installation.send_line(3, "of start 2", 2) == 200
    assert [line.text for line in store.read_logs(installation.job.pk).lines] == [
        "of start 1",
        "of start 1 on a node that was cut off",
        "of start 2",
    ]


def test_a_portal_that_is_up_decides_first(installation: Installation) -> None:
    installation.lose("trainer-1")
    reconciler.reconcile(installation.job.pk)
    Replica.objects.filter(name="trainer-1").update(finished=now().replace(year=2020))
    reconciler.reconcile(installation.job.pk)
    installation.bench.run(PATIENCE)
    assert installation.starts()["trainer-1"] == "2"
    assert "grantedStarts" not in installation.bench.status
    assert Replica.objects.get(name="trainer-1").restarts == 1


def test_a_portal_that_decides_at_the_same_time_counts_once(installation: Installation) -> None:
    installation.lose("trainer-1")
    reconciler.reconcile(installation.job.pk)
    Replica.objects.filter(name="trainer-1").update(finished=now().replace(year=2020))
    installation.bench.run(PATIENCE)  # the controller first
    for _ in range(2):
        reconciler.reconcile(installation.job.pk)
        installation.bench.run()
    row = Replica.objects.get(name="trainer-1")
    assert (row.start_number, row.restarts, installation.starts()["trainer-1"]) == (2, 1, "2")


def test_a_stopped_attempt_gets_no_pod(installation: Installation) -> None:
    installation.lose("trainer-1")
    installation.job.refresh_from_db()
    factory.current().stop(attempts.ref_of(installation.job, installation.attempt), timedelta(seconds=1))
    installation.bench.run(1000)
    assert installation.starts() == {}
    assert "grantedStarts" not in installation.bench.status


def test_a_job_made_before_has_no_starts_in_advance(
    submit: Callable[..., Job],
    use: Use,
    tmp_path: Path,
) -> None:
    made = install(submit, use, tmp_path, replace(SITE, replaces=False))
    assert "maxStarts" not in made.bench.server.of(names.KIND)[0]["spec"]
    made.lose("trainer-1")
    made.bench.run(1000)
    assert made.starts() == {"trainer-0": "1"}
