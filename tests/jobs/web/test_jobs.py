"""Pages of jobs, for every persona."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta

import pytest

from jobs.lifecycle import wording
from jobs.lifecycle.states import JobState
from jobs.messages import jobs as messages
from jobs.models import Job
from jobs.selectors import specifications
from jobs.services import jobs as job_services
from tests.factories import LONG_AGO, make_job
from tests.jobs.conftest import SPEC
from tests.messages import mentions
from tests.personas import Personas

# The status for each persona, of a page for all members of the namespace, and of one for submission.
READING = {"admin": 200, "owner": 200, "developer": 200, "viewer": 200, "stranger": 404, "nobody": 302}
WRITING = READING | {"viewer": 403}


@pytest.fixture
def job(personas: Personas) -> Job:
    taken = job_services.submit_job(actor=personas.owner, namespace="team", spec=specifications.parse(SPEC))
    return taken.job


@pytest.mark.parametrize(("persona", "status"), READING.items())
def test_the_list_is_for_members(personas: Personas, persona: str, status: int) -> None:
    assert personas.client(persona).get("/n/team/jobs").status_code == status


@pytest.mark.parametrize(("persona", "status"), READING.items())
def test_a_job_is_for_members(personas: Personas, job: Job, persona: str, status: int) -> None:
    assert personas.client(persona).get(f"/n/team/jobs/{job.pk}").status_code == status


@pytest.mark.parametrize(("persona", "status"), WRITING.items())
def test_the_editor_is_for_those_who_may_submit(personas: Personas, persona: str, status: int) -> None:
    assert personas.client(persona).get("/n/team/jobs/new").status_code == status


def test_a_job_is_found_in_its_own_namespace_only(personas: Personas, job: Job) -> None:
    client = personas.client("admin")
    assert client.get(f"/n/elsewhere/jobs/{job.pk}").status_code == 404
    assert client.get(f"/n/team/jobs/{uuid.uuid4()}").status_code == 404


def test_a_viewer_sees_no_buttons_that_would_be_refused(personas: Personas, job: Job) -> None:
    page = personas.client("viewer").get(f"/n/team/jobs/{job.pk}").content.decode()
    assert 'data-action="cancel"' not in page
    assert "Clone and edit" not in page


@pytest.mark.parametrize(("persona", "offered"), [("owner", True), ("admin", False), ("developer", False)])
def test_only_the_jobs_owner_is_offered_a_rehearsal(personas: Personas, job: Job, persona: str, offered: bool) -> None:
    page = personas.client(persona).get(f"/n/team/jobs/{job.pk}").content.decode()
    assert ('id="rehearsal-data"' in page) == offered


def test_the_job_page_carries_the_job_and_its_code(personas: Personas, job: Job) -> None:
    page = personas.client("viewer").get(f"/n/team/jobs/{job.pk}").content.decode()
    assert f'"id": "{job.pk}"' in page
    assert "print(\\u0027hello\\u0027)" in page or "print('hello')" in page


def test_code_cannot_break_out_of_the_page(personas: Personas) -> None:
    hostile = {**SPEC, "files": {"train.py": "# </script><script>alert(1)</script>\n"}}
    job = job_services.submit_job(actor=personas.owner, namespace="team", spec=specifications.parse(hostile)).job
    assert "<script>alert(1)" not in personas.client("owner").get(f"/n/team/jobs/{job.pk}").content.decode()


def test_a_clone_begins_with_the_code_of_the_other_job(personas: Personas, job: Job) -> None:
    page = personas.client("developer").get(f"/n/team/jobs/new?clone={job.pk}").content.decode()
    assert '"wanted": true' in page
    assert "hello" in page


@pytest.mark.parametrize("clone", ["not-a-job", "11111111-1111-1111-1111-111111111111"])
def test_a_clone_of_nothing_is_not_found(personas: Personas, clone: str) -> None:
    assert personas.client("developer").get(f"/n/team/jobs/new?clone={clone}").status_code == 404


def test_a_job_of_others_cannot_be_cloned_into_the_own_namespace(personas: Personas, job: Job) -> None:
    assert personas.client("stranger").get(f"/n/elsewhere/jobs/new?clone={job.pk}").status_code == 404


def names_on(page: str) -> list[str]:
    return re.findall(r'class="job-name"[^>]*>([^<]+)<', page)


def test_active_jobs_come_first_then_the_newest(personas: Personas) -> None:
    for age, (name, state) in enumerate(
        [("done-new", JobState.SUCCEEDED), ("done-old", JobState.FAILED), ("running-old", JobState.RUNNING)]
    ):
        make_job(personas.namespace, personas.owner, name=name, state=state, created=LONG_AGO - timedelta(days=age))
    page = personas.client("owner").get("/n/team/jobs").content.decode()
    assert names_on(page) == ["running-old", "done-new", "done-old"]


def test_the_list_shows_the_own_jobs_unless_all_are_requested(personas: Personas) -> None:
    make_job(personas.namespace, personas.owner, name="mine")
    make_job(personas.namespace, personas.developer, name="theirs")
    client = personas.client("owner")
    assert names_on(client.get("/n/team/jobs").content.decode()) == ["mine"]
    assert set(names_on(client.get("/n/team/jobs?owner=all").content.decode())) == {"mine", "theirs"}


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("q=dig", ["digits"]),
        ("state=active", ["digits"]),
        ("state=FAILED", ["line"]),
        ("state=nonsense", ["digits", "line"]),
        ("q=absent", []),
        ("after=nonsense", ["digits", "line"]),
    ],
)
def test_the_address_filters_the_list(personas: Personas, query: str, shown: list[str]) -> None:
    make_job(personas.namespace, personas.owner, name="digits", state=JobState.RUNNING)
    make_job(personas.namespace, personas.owner, name="line", state=JobState.FAILED)
    assert names_on(personas.client("owner").get(f"/n/team/jobs?{query}").content.decode()) == shown


def test_paging_shows_every_job_once_and_keeps_the_filter(personas: Personas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.selectors.job_list.PAGE", 2)
    for number in range(5):
        state = JobState.RUNNING if number % 2 else JobState.FAILED
        make_job(personas.namespace, personas.owner, name=f"job-{number}", state=state)
    client, address, seen = personas.client("owner"), "?q=job", []
    while address:
        page = client.get(f"/n/team/jobs{address}").content.decode()
        seen += names_on(page)
        older = re.search(r'href="(\?[^"]*after=[^"]*)"', page)
        address = older[1].replace("&amp;", "&") if older else ""
        assert not address or "q=job" in address
    assert sorted(seen) == [f"job-{number}" for number in range(5)]


def test_an_empty_list_invites(personas: Personas) -> None:
    assert "Start with the example" in personas.client("owner").get("/n/team/jobs").content.decode()


def test_home_is_where_one_was_last_and_never_where_one_is_no_longer(personas: Personas) -> None:
    client = personas.client("owner")
    client.get("/n/team/jobs")
    assert client.get("/")["Location"] == "/n/team/jobs"
    personas.namespace.memberships.filter(user=personas.owner).delete()
    assert client.get("/")["Location"] == "/n/owner/jobs"


@pytest.mark.parametrize("path", ["/sign-in", "/n/team/jobs", "/n/team/jobs/new", "/tokens", "/nothing-here"])
def test_scripts_and_styles_need_the_nonce_of_the_answer(personas: Personas, path: str) -> None:
    client = personas.client("nobody" if path == "/sign-in" else "owner")
    answer = client.get(path)
    nonce = re.search(r"'nonce-([^']+)'", answer["Content-Security-Policy"])
    assert nonce
    assert "unsafe" not in answer["Content-Security-Policy"]
    page = answer.content.decode()
    for tag in re.findall(r"<(?:script|style)\b[^>]*>", page):
        assert 'type="application/json"' in tag or f'nonce="{nonce[1]}"' in tag or "htmx" in tag, tag
    assert not re.search(r"\son\w+=|\sstyle=", page)
    assert client.get(path)["Content-Security-Policy"] != answer["Content-Security-Policy"]


def test_nothing_is_loaded_from_another_site(personas: Personas, job: Job) -> None:
    page = personas.client("owner").get(f"/n/team/jobs/{job.pk}").content.decode()
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)


@pytest.mark.parametrize("page", ["/n/team/jobs?owner=all", "/n/team/jobs/{job}", "/api/v1/jobs/{job}"])
def test_the_reason_is_reported_in_the_language_of_the_reader(personas: Personas, job: Job, page: str) -> None:
    Job.objects.filter(pk=job.pk).update(why=messages.TRAINING(trainers=wording.trainers(2)))
    answers = {
        language: personas.client("owner").get(page.format(job=job.pk), headers={"Accept-Language": language})
        for language in ("en", "zh-CN")
    }
    assert mentions(answers["en"].content.decode(), messages.TRAINING)
    chinese = answers["zh-CN"].content.decode()
    assert "正在使用 2 个训练器训练。" in chinese
    assert not mentions(chinese, messages.TRAINING)


def test_a_refused_field_is_reported_in_the_language_of_the_reader(personas: Personas) -> None:
    answer = personas.client("owner").post(
        "/api/v1/namespaces/team/jobs",
        {**SPEC, "name": ""},
        content_type="application/json",
        headers={"Accept-Language": "zh-CN"},
    )
    assert answer.json()["errors"]["name"] == ["请为任务命名，例如 digits。"]
    assert answer.json()["detail"] == "name：请为任务命名，例如 digits。"
