"""The way from sign-in to a model, in a browser."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from jobs.messages import jobs as job_messages
from regatta import Client
from runtime.messages import paragraph
from runtime.messages import training as training_messages
from tests.end_to_end.support import code
from tests.end_to_end.support.browser import Person
from tests.end_to_end.support.portal import ADMIN, ROOT, RunningPortal
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.browser, pytest.mark.timeout(300)]
CUTS = 20


def test_from_sign_in_to_a_trained_model(
    person: Callable[[], Person], portal: Client, running_portal: RunningPortal
) -> None:
    ada = person()
    page = ada.page
    ada.photograph("jobs")
    page.get_by_role("link", name="New job").first.click()
    page.get_by_role("button", name="Recognise digits").click()
    expect(page.locator("code-editor .cm-content")).to_contain_text("from runtime import dist")
    page.get_by_label("Trainers", exact=True).fill("2")
    ada.photograph("new-job")
    page.locator("code-editor .cm-content").click()
    # It trains until the test has seen everything of a running job, however slow this browser is.
    page.keyboard.press("Control+A")
    ada.paste(code.unhurried(portal.examples.get("digits")["files"]["train.py"]))
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**/jobs/*-*-*")
    job_id = page.url.rpartition("/")[2]
    for name in ("master-0", "pserver-0", "trainer-0", "trainer-1"):
        expect(page.locator("live-status").get_by_role("rowheader", name=name)).to_be_visible()
    ada.wait_for_state("RUNNING", "STOPPING", "SUCCEEDED")
    page.wait_for_function(
        "() => document.querySelector('metric-chart .scatterlayer path.js-line, metric-chart .js-line')"
    )
    # The curve grows with the run, not only when the page is loaded or the job has ended.
    page.wait_for_function(
        """() => {
            const plot = document.querySelector("metric-chart .chart-plot");
            const end = plot._fullLayout.xaxis.range[1];
            plot.dataset.first ??= end;
            const running = document.querySelector("[data-state-chip]").dataset.state === "RUNNING";
            return running && end > 1.5 * Number(plot.dataset.first);
        }"""
    )
    ada.photograph("running")
    running_portal.release(job_id)
    assert ada.wait_for_state("SUCCEEDED", "FAILED", "CANCELLED") == "SUCCEEDED"
    expect(page.locator("log-view .log-text").first).to_be_visible()
    ada.photograph("succeeded")

    ada.reopen()
    page = ada.page
    assert ada.wait_for_state("SUCCEEDED") == "SUCCEEDED"
    page.get_by_role("tab", name="Files").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").first.click()
    with np.load(io.BytesIO(download.value.path().read_bytes())) as model:
        assert model.files
    ada.photograph("files")


def test_a_syntax_error_is_shown_at_its_place(person: Callable[[], Person]) -> None:
    ada = person()
    page = ada.page
    page.get_by_role("link", name="New job").first.click()
    page.locator("code-editor .cm-content").click()
    page.keyboard.press("Control+Home")
    page.keyboard.type("if x == 1\n")
    expect(page.locator("[data-error-for=files]")).to_contain_text("train.py: Line 1, column 10")
    expect(page.locator("code-editor .cm-lint-marker-error")).to_be_visible()
    ada.photograph("syntax-error")


def test_a_job_is_cancelled_on_its_page(person: Callable[[], Person], portal: Client) -> None:
    job = portal.jobs.submit(code.slow("to-cancel", passes=200))
    ada = person()
    ada.watch(job.namespace, job.id)
    ada.wait_for_state("RUNNING")
    ada.wait_for_socket()
    ada.page.get_by_role("button", name="Cancel", exact=True).click()
    ada.page.get_by_role("button", name="Cancel job").click()
    assert ada.wait_for_state("CANCELLED", "FAILED", "SUCCEEDED") == "CANCELLED"


def test_a_job_is_scaled_on_its_page(person: Callable[[], Person], portal: Client) -> None:
    spec = code.slow("to-scale", passes=200, trainers=2)
    spec["roles"]["trainer"]["max"], spec["elastic"] = 3, False
    job = portal.jobs.submit(spec)
    ada = person()
    page = ada.page
    ada.watch(job.namespace, job.id)
    ada.wait_for_state("RUNNING")
    ada.shows_line("step 3")
    page.get_by_role("button", name="One trainer more").click()
    expect(page.locator("live-status").get_by_role("rowheader", name="trainer-2")).to_be_visible()
    expect(page.get_by_role("button", name="One trainer more")).to_be_disabled()
    expect(page.locator("log-view .chips").get_by_role("button", name="trainer-2")).to_be_visible()
    for axis in ("step", "elapsed", "wall"):
        page.get_by_label("Horizontal axis").select_option(axis)
        mark = page.locator("metric-chart .annotation-text", has_text="Scaled from 2 to 3 trainers")
        expect(mark).to_be_visible(timeout=60_000)
    expect(page.locator("metric-chart .xy2 .js-line").last).to_be_attached()
    page.get_by_role("tab", name="Events").click()
    expect(page.locator("[data-happening=scaled]")).to_contain_text(
        job_messages.SCALED(before=2, replicas=training_messages.TRAINER_COUNT(count=3), name="admin")
    )
    page.get_by_role("button", name="One parameter server more").click()
    expect(page.locator(".replica-stepper[data-role=pserver]")).to_contain_text("from the next attempt on; 1 now")
    expect(page.locator("[data-happening=scaled]", has_text="parameter servers")).to_contain_text(
        paragraph(
            job_messages.SCALED(before=1, replicas=job_messages.PSERVER_COUNT(count=2), name="admin"),
            job_messages.SCALING_TAKES_EFFECT_LATER(),
        )
    )
    ada.photograph("scaled")
    portal.jobs.cancel(job.id)
    ada.wait_for_state("CANCELLED")
    expect(page.get_by_role("button", name="One trainer more")).to_be_hidden()


def test_scaling_beyond_the_quota_is_refused_beside_the_number(person: Callable[[], Person], portal: Client) -> None:
    spec = code.slow("too-many", passes=200, trainers=1)
    spec["roles"]["trainer"]["max"], spec["elastic"] = 30, False
    job = portal.jobs.submit(spec)
    ada = person()
    stepper = ada.page.locator(".replica-stepper[data-role=trainer]")
    ada.watch(job.namespace, job.id)
    ada.wait_for_state("RUNNING")
    stepper.get_by_role("button", name="One trainer more").evaluate(
        "(more) => { for (let n = 0; n < 29; n++) more.click(); }"
    )
    expect(stepper).to_contain_text("The job needs 31.5 CPU;")
    expect(stepper.locator("output")).to_have_text("1")
    portal.jobs.cancel(job.id)


def test_a_failure_is_rehearsed_on_its_page_by_keyboard(person: Callable[[], Person], portal: Client) -> None:
    job = portal.jobs.submit(code.slow("to-rehearse", passes=200))
    ada = person()
    page, panel = ada.page, ada.page.locator(".rehearsal")
    ada.watch(job.namespace, job.id)
    ada.shows_line("step 3")
    panel.locator("summary").press("Enter")
    panel.get_by_label("every").fill("soon")
    panel.get_by_label("every").press("Enter")
    expect(panel.get_by_role("alert")).to_contain_text('"soon" is not a duration')
    panel.get_by_label("every").fill("2s")
    panel.get_by_label("every").press("Enter")
    expect(panel.get_by_role("status")).to_contain_text("Kills a trainer every 2s")
    survived = panel.locator("[data-back]").first
    expect(survived).to_contain_text("was killed for the rehearsal; back after", timeout=30_000)
    ada.photograph("rehearsed")
    expect(panel.get_by_role("button", name="Stop the rehearsal")).to_be_focused()
    page.keyboard.press("Enter")
    expect(panel.get_by_role("button", name="Start")).to_be_visible()
    page.get_by_role("tab", name="Events").click()
    expect(page.locator("[data-happening=rehearsal]").last).to_contain_text(job_messages.REHEARSAL_ENDED(name="admin"))
    portal.jobs.cancel(job.id)
    ada.wait_for_state("CANCELLED")
    expect(panel).to_be_hidden()


def test_two_browsers_and_twenty_cuts_show_one_log(
    person: Callable[[], Person], portal: Client, running_portal: RunningPortal
) -> None:
    job = portal.jobs.submit(code.slow("watched", passes=4))
    ada, grace = person(), person()
    for somebody in (ada, grace):
        somebody.watch(job.namespace, job.id)
    ada.shows_line("step 1")
    for _ in range(CUTS):
        ada.cut_socket()
    running_portal.release(job.id)
    assert portal.jobs.wait(job.id, 60).state == "SUCCEEDED"
    recorded = [(line.seq, line.text) for line in portal.jobs.logs.read(job.id)]
    for somebody in (ada, grace):
        last = recorded[-1][0]
        somebody.page.wait_for_function(
            "(last) => document.querySelector('log-view').lines.at(-1)?.seq === last", arg=last
        )
        assert [(line["seq"], line["text"]) for line in somebody.lines()] == recorded


def test_the_command_signs_in_by_the_browser(
    person: Callable[[], Person], running_portal: RunningPortal, tmp_path: Path
) -> None:
    ada, page_file = person(), tmp_path / "page"
    opener = tmp_path / "browse.sh"
    opener.write_text(f'#!/bin/sh\nprintf %s "$1" > {page_file}.part && mv {page_file}.part {page_file}\n')
    opener.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REGATTA_")}
    environment |= {"XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "client"), "BROWSER": f"{opener} %s"}
    regatta = [sys.executable, "-m", "regatta"]
    command = subprocess.Popen([*regatta, "login", "--server", running_portal.address], cwd=tmp_path, env=environment)
    until("the command opens the page", page_file.exists, 30)
    ada.page.goto(page_file.read_text())
    ada.photograph("connect")
    ada.page.get_by_role("button", name="Grant access").click()
    expect(ada.page.get_by_text("You are signed in. Go back to the terminal.")).to_be_visible()
    assert command.wait(30) == 0
    asked = [*regatta, "whoami", "-o", "name"]
    me = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert me.stdout.strip() == ADMIN
