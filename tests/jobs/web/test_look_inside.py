"""*Look inside* on the page of a job, in a real browser with real agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from jobs.backends.local.backend import LocalBackend
from jobs.control import keys
from jobs.lifecycle.states import JobState
from jobs.models import Job
from jobs.selectors.attempts import ref_of
from portal.common.clock import now
from runtime import contract
from tests.contracts.backend_contract import NO_GRACE, all_exited, all_running, make_plan, wait_until
from tests.factories import make_attempt
from tests.personas import Personas
from tests.runtime.agent.ingest_server import IngestServer

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.django_db(transaction=True)]
SCRIPT = """
import time
def spins():
    time.sleep(600)
def waits():
    spins()
waits()
"""


@pytest.fixture
def job(submit: Callable[..., Job], tmp_path: Path, settings: Any) -> Iterator[Job]:
    """A job of ``team`` with two trainers under real agents."""
    settings.CLUSTER_BACKEND = "local"
    job = submit()
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING)
    attempt, portal = make_attempt(job), IngestServer()
    for index in range(2):
        attempt.replicas.create(name=f"trainer-{index}", role="trainer", index=index, state="registered", started=now())
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "train.py").write_text(SCRIPT)
    environment = {contract.INGEST_URL: portal.url, contract.SANDBOX: "none"}
    ref, backend = ref_of(job, attempt), LocalBackend(tmp_path / "attempts")
    plan = replace(make_plan(tmp_path / "bundle", environment), ref=ref, control_key=keys.current(ref.attempt_id))
    backend.launch(plan)
    wait_until(backend, ref, all_running)
    yield job
    backend.stop(ref, NO_GRACE)
    wait_until(backend, ref, all_exited)
    portal.close()


def open_page(page: Page, live_server: LiveServer, job: Job, personas: Personas) -> None:
    session = personas.client("developer").cookies[django_settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies([{"name": django_settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}])
    page.goto(f"{live_server.url}/n/team/jobs/{job.pk}")


def test_stacks_are_grouped_and_a_flame_graph_is_walked_by_keys(
    page: Page, live_server: LiveServer, job: Job, personas: Personas
) -> None:
    open_page(page, live_server, job, personas)
    page.click("role=tab[name='Look inside']")
    page.click("text=Take stacks")
    expect(page.locator(".look-group").first).to_contain_text("2 × trainer", timeout=60_000)
    expect(page.locator(".look-group").first).to_contain_text("waits")
    # The usual recording takes ten seconds.
    page.route("**/flamegraph", lambda route: route.continue_(post_data='{"seconds": 1}'))
    page.click("text=Record flame graph")
    boxes = page.locator("flame-graph g")
    expect(boxes.filter(has_text="spins (train.py)").first).to_be_visible(timeout=60_000)
    boxes.first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(page.locator(".flame-chosen")).to_contain_text("<module>")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.locator("text=in memory").first).to_be_visible()
