"""Form of a new job in a real browser: the fields of each framework, and the resulting specification."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from jobs.builds import builders, code_snapshots
from jobs.models import Job
from rbac.services import ensure_personal_namespace
from tests.factories import make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PASSWORD = "a-long-enough-one"
# Fields of the platform's own master, and of parameter servers.
OF_MASTER = ("#mode", "#elastic", "[data-path='roles.trainer.max']")
OF_SERVERS = ("[data-path='roles.pserver.replicas']",)


def come_to_the_form(page: Page, live_server: LiveServer) -> None:
    ensure_personal_namespace(make_user("ada", password=PASSWORD))
    page.goto(f"{live_server.url}/sign-in?next=/n/ada/jobs/new")
    page.fill("#username", "ada")
    page.fill("#password", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_selector("#framework")


@pytest.fixture
def form(page: Page, live_server: LiveServer) -> Page:
    come_to_the_form(page, live_server)
    expect(page.locator("#name")).not_to_have_value("")
    page.click("#yaml-panel > summary")
    expect(page.locator("#yaml")).not_to_have_value("")  # loaded when it is first opened
    return page


def contains(*parts: str) -> re.Pattern[str]:
    return re.compile("".join(f"(?=.*{re.escape(part)})" for part in parts), re.DOTALL)


def shown(form: Page, *fields: str) -> list[bool]:
    return [form.is_visible(field) for field in fields]


def test_buttons_wait_for_the_script_that_handles_them(page: Page, live_server: LiveServer) -> None:
    held: list[Route] = []
    page.route("**/new-job-*.js", lambda route: held.append(route))
    with page.expect_request("**/new-job-*.js"):
        come_to_the_form(page, live_server)
    example, submit = (page.get_by_role("button", name=name) for name in ("Fit a line", "Submit"))
    expect(example).to_be_disabled()
    expect(submit).to_be_disabled()
    [script] = held
    script.continue_()
    example.click()
    expect(page.locator("#name")).to_have_value("fit-a-line")
    expect(submit).to_be_enabled()


@pytest.mark.parametrize(
    ("framework", "master", "servers"),
    [("native", True, True), ("command", True, True), ("paddle", False, True), ("torch", False, False)],
)
def test_a_framework_has_the_fields_that_it_has_a_use_for(
    form: Page, framework: str, master: bool, servers: bool
) -> None:
    form.select_option("#framework", framework)
    assert shown(form, *OF_MASTER) == [master] * len(OF_MASTER)
    assert shown(form, *OF_SERVERS) == [servers]


def test_a_command_without_parameter_servers_has_no_master_either(form: Page) -> None:
    form.select_option("#framework", "command")
    form.fill("[data-path='roles.trainer.max']", "")
    form.fill("[data-path='roles.pserver.replicas']", "0")
    assert shown(form, *OF_MASTER) == [False] * len(OF_MASTER)
    form.fill("[data-path='roles.pserver.replicas']", "1")
    assert shown(form, *OF_MASTER) == [True] * len(OF_MASTER)


def test_fields_that_a_framework_does_not_use_disappear_when_it_is_chosen(form: Page) -> None:
    form.fill("[data-path='roles.trainer.max']", "8")
    form.select_option("#elastic", "true")
    form.select_option("#mode", "async")
    yaml = form.locator("#yaml")
    expect(yaml).to_have_value(contains("elastic: true", "max: 8", "mode: async"))
    form.select_option("#framework", "torch")
    expect(yaml).not_to_have_value(contains("elastic"))
    expect(yaml).not_to_have_value(contains("max"))
    expect(yaml).not_to_have_value(contains("mode"))


def test_a_field_with_an_invalid_value_is_shown_with_its_error(form: Page) -> None:
    form.fill("#yaml", "name: x\nframework: torch\nroles: {trainer: {replicas: 2, max: 4}}")
    problem = form.locator("[data-error-for='roles.trainer.max']")
    expect(problem).to_contain_text("is fixed: they all connect once")
    assert shown(form, "[data-path='roles.trainer.max']", "#mode") == [True, False]


def test_whether_it_is_elastic_can_be_left_to_the_bounds(form: Page) -> None:
    yaml = form.locator("#yaml")
    form.select_option("#elastic", "false")
    expect(yaml).to_have_value(contains("elastic: false"))
    form.select_option("#elastic", "")
    expect(yaml).not_to_have_value(contains("elastic"))


# --- Custom images ---------------------------------------------------------------------------------------------------
IMAGE = "registry.example.com/team/train:1"


@pytest.fixture
def runs_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a backend with pods that run from images."""
    monkeypatch.setattr(builders, "runs_images", lambda: True)


@pytest.fixture
def command(runs_images: None, form: Page) -> Page:
    """The form for any program, after the form for the platform's own runtime was filled."""
    form.fill("#requirements", "pandas")
    form.select_option("#framework", "command")
    return form


def test_where_jobs_are_processes_of_one_machine_there_is_no_field_for_an_image(form: Page) -> None:
    for framework in ("native", "command", "paddle", "torch"):
        form.select_option("#framework", framework)
        assert shown(form, "#image") == [False]


@pytest.mark.usefixtures("runs_images")
def test_only_any_program_may_be_in_an_image_of_its_own(form: Page) -> None:
    for framework, may in (("native", False), ("command", True), ("paddle", False), ("torch", False)):
        form.select_option("#framework", framework)
        assert shown(form, "#image") == [may]


def test_requirements_and_code_disappear_once_an_image_is_named_and_the_code_returns_without_it(
    command: Page,
) -> None:
    yaml = command.locator("#yaml")
    command.fill("#image", IMAGE)
    expect(yaml).to_have_value(contains("pandas"))  # while the name of the image is incomplete
    command.press("#image", "Tab")
    expect(yaml).to_have_value(contains(IMAGE))
    for gone in ("pandas", "train.py"):
        expect(yaml).not_to_have_value(contains(gone))
    assert shown(command, "code-editor", "#requirements", *OF_MASTER, *OF_SERVERS) == [False] * 6
    expect(command.locator("[data-no-code]").first).to_contain_text("without code from this page")
    command.fill("#image", "")
    expect(command.locator("code-editor .cm-content")).to_contain_text("import")


def test_an_invalid_image_is_reported_beside_its_field_and_nothing_is_lost(command: Page) -> None:
    command.fill("#image", "no image at all")
    command.press("#image", "Enter")
    expect(command.locator("[data-error-for=image]")).to_contain_text("is not the name of an image")
    expect(command.locator("#image")).to_be_focused()
    command.reload()
    expect(command.locator("#image")).to_have_value("no image at all")
    command.fill("#image", "")
    expect(command.locator("code-editor .cm-content")).to_contain_text("import")


def test_a_job_with_an_image_is_submitted_without_code_and_cloned_as_it_was(command: Page) -> None:
    command.fill("#name", "bare")
    command.fill("#image", IMAGE)
    command.press("#image", "Enter")
    command.wait_for_url(re.compile(r"/jobs/[0-9a-f-]{36}$"))
    job = Job.objects.get()
    assert (job.spec["framework"], job.spec["image"], job.spec["entrypoint"]) == ("command", IMAGE, "")
    assert (job.spec["requirements"], code_snapshots.files_of(job.snapshot)) == ([], {})
    command.goto(re.sub(r"/jobs/[^/]*$", f"/jobs/new?clone={job.pk}", command.url))
    expect(command.locator("#image")).to_have_value(IMAGE)
    expect(command.locator("[data-verdict]")).to_contain_text("Fits the quota")


def test_an_image_that_this_installation_cannot_run_is_refused_beside_its_field(form: Page) -> None:
    form.fill("#yaml", f"name: x\nimage: {IMAGE}")
    expect(form.locator("[data-error-for=image]")).to_contain_text("Remove the field image")
    assert shown(form, "#image") == [True]
