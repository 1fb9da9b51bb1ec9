"""Jobs on a real cluster, from the submission to the model, with kills meanwhile: ``make test-kube``.

A complete portal runs on this machine. Its jobs use an etcd that requires authentication.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from playwright.sync_api import Page, expect

from jobs.backends.kubernetes.manifests import job_name, pod_name
from jobs.messages import jobs as messages
from regatta import Client
from regatta.job import Job
from tests import browser
from tests.end_to_end.support import code
from tests.end_to_end.support.browser import Person
from tests.end_to_end.support.portal import RunningPortal
from tests.jobs.operator.environment import controller_on, etcd_on, native, portal_on
from tests.jobs.operator.kube_cluster import Cluster, Controller, own_prefix
from tests.jobs.operator.trial import SMALL, Trial
from tests.servers.etcd_server import EtcdServer
from tests.waiting import until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(900)]

SECONDS = 240.0
PREFIX = own_prefix("test")


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture(scope="module")
def store(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    with etcd_on(cluster, tmp_path_factory.mktemp("etcd")) as store:
        yield store


@pytest.fixture(scope="module")
def controller(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    with controller_on(cluster, tmp_path_factory.mktemp("controller"), PREFIX) as controller:
        yield controller


@pytest.fixture(scope="module")
def running_portal(
    cluster: Cluster, controller: Controller, store: EtcdServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningPortal]:
    directory = tmp_path_factory.mktemp("running_portal") / "data"
    with portal_on(cluster, directory, PREFIX, **native(cluster, store)) as running_portal:
        yield running_portal


@pytest.fixture(scope="module")
def portal(running_portal: RunningPortal) -> Iterator[Client]:
    with running_portal.client() as client:
        yield client


@pytest.fixture
def trial(portal: Client, cluster: Cluster) -> Iterator[Trial]:
    with Trial(portal, cluster).open() as trial:
        yield trial


@pytest.fixture(scope="module")
def shared(portal: Client, cluster: Cluster) -> Iterator[Trial]:
    """Return the trial of the job that several tests share: see ``job``."""
    with Trial(portal, cluster).open() as trial:
        yield trial


@pytest.fixture
def job(shared: Trial) -> Job:
    """Return a job that trains with two trainers, in its first attempt.

    Tests share it, since it goes on after their kills; if an earlier test has ended it, another one is submitted.
    """
    found = next((one.refresh() for one in shared.jobs[-1:]), None)
    if found is None or (found.state, found.attempt) != ("RUNNING", 1):
        found = run(shared, {**endless("standing"), "env": {"API_KEY": SECRET}})
    else:
        shared.portal.jobs.scale(found.id, trainer=2)
    shared.until("it has two trainers", lambda: trainers(found.refresh()) == ["trainer-0", "trainer-1"])
    shared.until_trained(found, "trainer-0", "trainer-1")
    return found


SECRET = "open sesame"


def trainers(job: Job) -> list[str]:
    """Return the trainers that take part."""
    return [one.name for one in job.replicas if one.role == "trainer" and one.state == "registered"]


def run(trial: Trial, spec: dict[str, Any]) -> Job:
    """Submit a job with a fixed number of trainers.

    An elastic job would get the whole free capacity of the cluster, which concurrent tests need.
    """
    roles = {"trainer": {"replicas": 2, "max": 4, **SMALL}, "pserver": {"replicas": 2, **SMALL}}
    return trial.submit({**spec, "roles": {**roles, "master": {"cpu": SMALL["cpu"]}}, "elastic": False})


def endless(name: str) -> dict[str, Any]:
    """Return a job that trains until it is cancelled."""
    return code.slow(name, passes=500, pause=0.3)


def numbers(trial: Trial, job: Job, *replicas: str) -> dict[str, list[int]]:
    """Return the steps that each replica has printed so far."""
    return {replica: trial.steps(job, replica) for replica in replicas}


def assert_whole(before: dict[str, list[int]], after: dict[str, list[int]]) -> None:
    """Assert that every line printed since is present, once, in order."""
    for replica, now in after.items():
        known = before[replica]
        assert now == [*known, *range(known[-1] + 1, known[-1] + 1 + len(now) - len(known))], replica


# --- From submission to model ----------------------------------------------------------------------------------------
def test_from_the_submission_to_the_downloaded_model(
    portal: Client, trial: Trial, store: EtcdServer, tmp_path: Path
) -> None:
    job = run(trial, {**portal.examples.get("fit-a-line"), "passes": 20})
    ended = portal.jobs.wait(job.id, SECONDS)
    assert (ended.state, ended.why) == ("SUCCEEDED", messages.TRAINED(trainers=messages.TRAINER_COUNT(count=2))), ended
    portal.jobs.artifacts.download(job.id, "model.npz", tmp_path / "model.npz")
    assert {"w", "b"} <= set(np.load(tmp_path / "model.npz").files)
    assert len(portal.jobs.metrics.series(job.id, "cost")["cost"].x) > 10
    assert {line.replica for line in portal.jobs.logs.read(job.id)} == {
        *("master-0", "pserver-0", "pserver-1", "trainer-0", "trainer-1")
    }
    trial.until_nothing_is_left(job)
    # The account is removed after the objects on the cluster.
    trial.until("its account is removed from etcd", lambda: f"regatta-{job.id}-1" not in users(store))


def users(store: EtcdServer) -> str:
    return store.ctl("user", "list", account=f"root:{store.password}")


def test_from_a_browser_s_submit_to_the_model_that_it_downloads(running_portal: RunningPortal, trial: Trial) -> None:
    with browser.chromium() as chromium:
        ada = Person(chromium, running_portal)
        ada.sign_in()
        page = ada.page
        page.get_by_role("link", name="New job").first.click()
        page.get_by_role("button", name="Fit a line").click()
        page.get_by_label("Trainers", exact=True).fill("2")
        page.get_by_label("Parameter servers", exact=True).fill("2")
        request_little(page)
        page.get_by_role("button", name="Submit").click()
        page.wait_for_url("**/jobs/*-*-*")
        trial.jobs.append(trial.portal.jobs.get(page.url.rpartition("/")[2]))
        for name in ("master-0", "pserver-1", "trainer-1"):
            expect(page.locator("live-status").get_by_role("rowheader", name=name)).to_be_visible()
        trial.until("the curve is drawn", lambda: page.locator("metric-chart .js-line").count())
        assert ada.wait_for_state("SUCCEEDED", "FAILED", seconds=SECONDS) == "SUCCEEDED", trial.diagnosis()
        page.get_by_role("tab", name="Files").click()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").first.click()
        with np.load(download.value.path()) as model:
            assert {"w", "b"} <= set(model.files)
        assert (ada.violations(), ada.real_complaints()) == ([], [])
        ada.leave()


def request_little(page: Page) -> None:
    """Reduce the requests in the page's YAML, to fit beside other tests' pods."""
    page.locator("#yaml-panel summary").click()
    area = page.locator("textarea#yaml")
    expect(area).to_have_value(re.compile("pserver"))
    spec = yaml.safe_load(area.input_value())
    roles = {role: {**spec["roles"][role], **SMALL} for role in ("trainer", "pserver")}
    area.fill(yaml.safe_dump({**spec, "roles": {**roles, "master": {"cpu": SMALL["cpu"]}}}))
    expect(page.locator("[data-path='roles.pserver.cpu']")).to_have_value(str(SMALL["cpu"]))


def test_no_secret_of_a_job_appears_anywhere(
    shared: Trial, job: Job, cluster: Cluster, running_portal: RunningPortal
) -> None:
    shown = cluster.kubectl("get", "paddlejobs,pods,configmaps,events", "-o", "yaml") + running_portal.printed()
    shown += "".join(line.text for line in job.logs())
    assert f"regatta/job: {job.id}" in shown
    for secret in ("rga_", SECRET, "etcd://"):
        assert secret not in shown


# --- Scaling ---------------------------------------------------------------------------------------------------------
def test_trainers_join_and_leave_in_mid_run(shared: Trial, job: Job) -> None:
    job.scale(trainer=4)
    shared.until_trained(job, "trainer-2", "trainer-3")
    job.scale(trainer=2)
    shared.until("they have left", lambda: trainers(job.refresh()) == ["trainer-0", "trainer-1"])
    shared.until_trained(job, "trainer-0", "trainer-1")
    assert job.refresh().attempt == 1


# --- Kills -----------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("A killed pod is replaced in the same attempt, without a lost or duplicated log line.")
@pytest.mark.parametrize("victim", ["trainer-1", "pserver-0", "master-0"])
def test_a_killed_pod_is_started_again_and_the_job_goes_on(shared: Trial, job: Job, victim: str) -> None:
    before = numbers(shared, job, "trainer-0")
    shared.kill(job, victim)
    shared.until_back(job, victim)
    shared.until_trained(job, "trainer-0", more=4)
    assert job.refresh().attempt == 1
    assert_whole(before, numbers(shared, job, "trainer-0"))


@pytest.mark.invariant("Jobs on a cluster lose and duplicate no log line if the portal is killed.")
def test_a_killed_portal_loses_and_doubles_nothing(shared: Trial, job: Job, running_portal: RunningPortal) -> None:
    before = numbers(shared, job, "trainer-0", "trainer-1")
    running_portal.crash()
    running_portal.start()
    shared.until_trained(job, "trainer-0", "trainer-1", more=6)
    assert_whole(before, numbers(shared, job, "trainer-0", "trainer-1"))
    assert (job.refresh().state, job.refresh().attempt) == ("RUNNING", 1)


@pytest.mark.invariant("On a cluster, a pod that is lost while the portal is away is replaced and then adopted.")
def test_a_pod_that_is_lost_while_the_portal_is_away_is_replaced(
    shared: Trial, job: Job, running_portal: RunningPortal, cluster: Cluster
) -> None:
    before = numbers(shared, job, "trainer-0")
    attempt = shared.attempt(job)
    paddle_job, pod = job_name(attempt), pod_name(attempt, "trainer-1")
    lost = cluster.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
    shared.until(
        "starts are granted in advance",
        lambda: cluster.kubectl("get", "pdj", paddle_job, "-o", "jsonpath={.spec.maxStarts.worker-1}"),
    )
    running_portal.crash()
    try:
        shared.kill(job, "trainer-1")
        one = ("get", "pods", "--field-selector", f"metadata.name={pod},status.phase=Running", "-o")
        uid = until(
            "another pod runs", lambda: cluster.kubectl(*one, "jsonpath={.items[*].metadata.uid}").replace(lost, ""), 60
        )
    finally:
        running_portal.start()
    shared.until("it is adopted", lambda: any("replaced by the cluster" in event["text"] for event in job.events()))
    shared.until_trained(job, "trainer-0", "trainer-1")
    assert cluster.kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.uid}") == uid
    assert_whole(before, numbers(shared, job, "trainer-0"))


def test_a_portal_that_is_stopped_in_order_leaves_its_jobs_running(
    shared: Trial, job: Job, running_portal: RunningPortal
) -> None:
    before = numbers(shared, job, "trainer-0")
    running_portal.interrupt()
    running_portal.start()
    shared.until_trained(job, "trainer-0", more=6)
    assert_whole(before, numbers(shared, job, "trainer-0"))
    assert (job.refresh().state, job.refresh().attempt) == ("RUNNING", 1)


@pytest.mark.invariant("Jobs on a cluster keep running if the controller is killed.")
def test_without_a_controller_jobs_go_on_and_requests_are_done_later(
    shared: Trial, job: Job, controller: Controller
) -> None:
    controller.kill()
    try:
        job.scale(trainer=3)
        shared.until_trained(job, "trainer-0")
    finally:
        controller.start()
    shared.until_trained(job, "trainer-2")
    assert job.refresh().attempt == 1


def test_a_job_that_is_cancelled_leaves_nothing_on_the_cluster(trial: Trial) -> None:
    job = run(trial, endless("cancel"))
    trial.until_trained(job, "trainer-0")
    job.cancel()
    assert job.wait(SECONDS).state == "CANCELLED"
    trial.until_nothing_is_left(job)


def test_a_job_whose_paddle_job_is_deleted_is_retried_with_a_reason(trial: Trial, cluster: Cluster) -> None:
    job = run(trial, endless("paddle-job-deleted"))
    trial.until_trained(job, "trainer-0")
    cluster.kubectl("delete", "paddlejobs", job_name(trial.attempt(job)), "--wait=false")
    trial.until("it is tried again", lambda: job.refresh().attempt == 2)
    assert any("gone" in event["text"] for event in job.events())
    trial.until("it runs", lambda: job.refresh().state == "RUNNING")


# --- Refusals by the cluster -----------------------------------------------------------------------------------------
def test_a_quota_of_the_cluster_is_the_job_s_reason(shared: Trial, job: Job, cluster: Cluster) -> None:
    third = pod_name(shared.attempt(job), "trainer-2")
    shared.until("nobody is asked for again while an earlier one still ends", lambda: third not in shared.left(job))
    path = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas"
    cluster.api.call("POST", path, {"metadata": {"name": "none"}, "spec": {"hard": {"limits.memory": "1Mi"}}})
    try:
        cluster.until_enforced("none")
        job.scale(trainer=3)
        shared.until("the job says why it waits", lambda: "exceeded quota" in job.refresh().why)
    finally:
        cluster.api.call("DELETE", f"{path}/none")
    shared.until_trained(job, "trainer-2")
