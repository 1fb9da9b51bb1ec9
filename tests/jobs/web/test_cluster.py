"""Admin page of the cluster: its usage, the queue, the mode of elastic jobs, and what-if simulations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from jobs.backends import factory as backend_factory
from jobs.messages import elastic as elastic_messages
from jobs.models import Elastic, ElasticMode, Job, Neighbour
from jobs.reconcile import reconciler
from jobs.reconcile.sweep import sweep
from jobs.selectors import elastic_jobs
from jobs.web import cluster as cluster_views
from jobs.web import cluster_overview
from portal.common.clock import now
from quota import messages as quota_messages
from quota.models import Capacity, Stretch
from rbac.models import AuditEntry
from runtime.messages import to_json
from runtime.messages import training as training_messages
from tests.browser import Watch
from tests.factories import make_user
from tests.jobs.conftest import Use
from tests.jobs.fakes import MachineBackend
from tests.messages import mentions
from tests.personas import EVERYBODY, Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
PASSWORD = "a-long-enough-one"
PATHS = ("/admin/cluster", "/admin/cluster/now")


@pytest.fixture
def busy(use: Use, submit: Submit) -> tuple[Job, Job]:
    """Return a job that holds the whole capacity, and one that waits."""
    use(MachineBackend(4))
    Capacity.objects.create(resource="cpu", amount=4)
    runs, waits = submit(name="runs"), submit(name="waits")
    for job in (runs, waits):
        reconciler.reconcile(job.pk)
    return runs, waits


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("person", EVERYBODY)
def test_it_is_the_admins(personas: Personas, person: str, path: str) -> None:
    expected = {"admin": 200, "nobody": 302}.get(person, 403)
    assert personas.client(person).get(path).status_code == expected


def test_the_page_of_a_running_elastic_job_explains_its_number_of_trainers(
    personas: Personas, busy: tuple[Job, Job]
) -> None:
    job = busy[0]
    Elastic.objects.create(
        decisions={
            str(job.pk): {
                "trainers": 2,
                "why": to_json(elastic_messages.KEEPS_NO_CAPACITY(trainers=training_messages.TRAINER_COUNT(count=2))),
            }
        }
    )
    Job.objects.filter(pk=job.pk).update(elastic=True, state="RUNNING")
    page, api = f"/n/team/jobs/{job.pk}", f"/api/v1/jobs/{job.pk}"
    viewer = personas.client("viewer")
    assert (
        elastic_messages.KEEPS_NO_CAPACITY(trainers=training_messages.TRAINER_COUNT(count=2))
        in viewer.get(page).content.decode()
    )
    assert viewer.get(api).json()["sizing"] == elastic_messages.KEEPS_NO_CAPACITY(
        trainers=training_messages.TRAINER_COUNT(count=2)
    )
    assert "没有可用资源来增加训练器" in viewer.get(page, headers={"Accept-Language": "zh-hans"}).content.decode()
    for without_decision in ({"elastic": False}, {"elastic": True, "state": "QUEUED"}):
        Job.objects.filter(pk=job.pk).update(**without_decision)
        assert viewer.get(api).json()["sizing"] == ""


@pytest.mark.parametrize("path", ["/admin/cluster/mode", "/admin/cluster/what-if"])
@pytest.mark.parametrize("person", ["owner", "stranger", "nobody"])
def test_only_admins_simulate_or_switch(personas: Personas, person: str, path: str) -> None:
    answer = personas.client(person).post(path, {"mode": "off", "reason": "x", "policy": "fixed"})
    assert answer.status_code == (302 if person == "nobody" else 403)
    assert elastic_jobs.mode() is ElasticMode.ON


def test_it_shows_the_running_jobs_and_why_others_wait(personas: Personas, busy: tuple[Job, Job]) -> None:
    Elastic.objects.create(
        decisions={
            str(busy[0].pk): {
                "trainers": 2,
                "why": elastic_messages.KEEPS_MAXIMUM(trainers=training_messages.TRAINER_COUNT(count=2)),
            }
        }
    )
    Job.objects.filter(pk=busy[0].pk).update(elastic=True)
    page = personas.client("admin").get("/admin/cluster").content.decode()
    assert elastic_messages.KEEPS_MAXIMUM(trainers=training_messages.TRAINER_COUNT(count=2)) in page
    assert mentions(
        page,
        quota_messages.PLATFORM_CAPACITY_SHORT,
        needed=quota_messages.AMOUNT_OF_CPU(amount="3.5"),
        free="0.5",
        limit="4",
    )
    chinese = personas.client("admin").get("/admin/cluster", headers={"accept-language": "zh-hans"}).content.decode()
    assert "集群" in chinese


def test_the_chart_shows_the_amount_held_by_each_job_over_time(busy: tuple[Job, Job]) -> None:
    Stretch.objects.update(begun=now() - timedelta(minutes=30))
    chart = cluster_overview.chart(now(), "hour")
    [strand] = chart["strands"]
    assert (strand["name"], chart["capacity"]) == ("team/runs", 4)
    assert (strand["y"][0], strand["y"][-1]) == (0, 3.5)
    assert sum(amount > 0 for amount in strand["y"]) == pytest.approx(cluster_overview.POINTS / 2, abs=2)


def test_the_chart_shows_services_and_other_pods_and_all_cores_of_the_nodes(
    use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_factory, "machine", lambda: None)
    Elastic.objects.create(cores=32)
    for number in range(cluster_overview.SHOWN_SERVICES + 2):
        begun = now() - timedelta(minutes=30)
        Neighbour.objects.create(key=f"shop/web-{number}", cores=10 - number, begun=begun)
    Neighbour.objects.create(key="", cores=0.5, begun=now() - timedelta(minutes=20))
    chart = cluster_overview.chart(now(), "hour")
    assert [(each["name"], each["y"][0], each["y"][-1]) for each in chart["services"]] == [
        ("shop/web-0", 0, 10),
        ("shop/web-1", 0, 9),
        ("shop/web-2", 0, 8),
        ("shop/web-3", 0, 7),
    ]
    assert (chart["others"][-1], chart["capacity"]) == (6 + 5 + 0.5, 32)


def test_those_that_held_least_are_shown_as_one(use: Use, submit: Submit, settings) -> None:
    use(MachineBackend(100))
    settings.DEFAULT_QUOTA = {}
    for _ in range(cluster_overview.SHOWN_JOBS + 2):
        reconciler.reconcile(submit().pk)
    chart = cluster_overview.chart(now(), "hour")
    assert (len(chart["strands"]), chart["rest"][-1]) == (cluster_overview.SHOWN_JOBS, 2 * 3.5)


def test_an_admin_switches_elastic_jobs_with_a_reason(personas: Personas) -> None:
    client = personas.client("admin")
    client.post("/admin/cluster/mode", {"mode": "explain", "reason": "Looking first."})
    assert elastic_jobs.mode() is ElasticMode.EXPLAIN
    entry = AuditEntry.objects.get(action="elastic.mode")
    assert (entry.before, entry.after, entry.reason) == ({"mode": "settings"}, {"mode": "explain"}, "Looking first.")
    for fields in ({"mode": "off", "reason": ""}, {"mode": "sometimes", "reason": "x"}):
        client.post("/admin/cluster/mode", fields)
    assert elastic_jobs.mode() is ElasticMode.EXPLAIN
    client.post("/admin/cluster/mode", {"mode": "", "reason": "As before."})
    assert elastic_jobs.mode() is ElasticMode.ON


def ask(personas: Personas, **fields: str) -> str:
    asked = {"policy": "regatta", "cores": "", "cool_down": "30", "work": "30", "window": "20", **fields}
    answer = personas.client("admin").post("/admin/cluster/what-if", asked)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.django_db(transaction=True)
def test_what_if_there_were_more_cores(personas: Personas, busy: tuple[Job, Job]) -> None:
    page = ask(personas, cores="16")
    row = page.split("Jobs that do not begin")[1].split("</tr>")[0]
    assert (row.count(">1<"), row.count(">0<")) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_every_number_of_a_simulation_is_bounded(personas: Personas, busy: tuple[Job, Job]) -> None:
    page = ask(personas, cores="1e400", cool_down="nan", work="-1", window="99999999", policy="drop")
    assert "Jobs that do not begin" in page


@pytest.mark.django_db(transaction=True)
def test_an_answer_that_takes_too_long_is_given_up(
    personas: Personas, busy: tuple[Job, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_views, "_ANSWER_SECONDS", 0.001)
    assert "It took too long." in ask(personas)


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_the_page_stays_as_the_cluster_is_and_answers_by_keyboard(
    page: Page, watch: Watch, live_server: LiveServer, busy: tuple[Job, Job]
) -> None:
    make_user("ada", password=PASSWORD, admin=True)
    page.goto(f"{live_server.url}/sign-in?next=/admin/cluster")
    page.fill("#username", "ada")
    page.fill("#password", PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("cluster-chart .chart-summary")).to_have_text("3.5 of 4 cores reserved now")
    expect(page.locator("cluster-chart .chart-legend")).to_contain_text("team/runs3.5")
    expect(page.get_by_role("link", name="waits")).to_be_visible()
    Capacity.objects.update(amount=16)
    sweep(now())
    expect(page.locator("cluster-chart .chart-summary")).to_have_text("7 of 16 cores reserved now", timeout=60_000)
    expect(page.get_by_text("No queued jobs.")).to_be_visible()
    page.get_by_label("CPU cores (empty: current)").fill("4")
    page.keyboard.press("Enter")
    expect(page.locator("[data-answer]")).to_contain_text("Jobs that do not begin", timeout=30_000)
    assert watch.violations == []
