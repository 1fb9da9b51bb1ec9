"""The form of a new job in a real browser: which fields a framework has, and what they make of the specification."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from rbac.services import ensure_personal_namespace
from tests.factories import make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PASSWORD = "a-long-enough-one"
# Fields of the platform's own master, and of parameter servers.
OF_MASTER = ("#mode", "#elastic", "[data-path='roles.trainer.max']")
OF_SERVERS = ("[data-path='roles.pserver.replicas']",)


@pytest.fixture
def form(page: Page, live_server: LiveServer) -> Page:
    ensure_personal_namespace(make_user("ada", password=PASSWORD))
    page.goto(f"{live_server.url}/sign-in?next=/n/ada/jobs/new")
    page.fill("#username", "ada")
    page.fill("#password", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_selector("#framework")
    expect(page.locator("#name")).not_to_have_value("")
    page.click("#yaml-panel > summary")
    return page


def contains(*parts: str) -> re.Pattern[str]:
    return re.compile("".join(f"(?=.*{re.escape(part)})" for part in parts), re.DOTALL)


def shown(form: Page, *fields: str) -> list[bool]:
    return [form.is_visible(field) for field in fields]


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


def test_what_a_framework_has_no_use_for_goes_when_it_is_chosen(form: Page) -> None:
    form.fill("[data-path='roles.trainer.max']", "8")
    form.select_option("#elastic", "true")
    form.select_option("#mode", "async")
    yaml = form.locator("#yaml")
    expect(yaml).to_have_value(contains("elastic: true", "max: 8", "mode: async"))
    form.select_option("#framework", "torch")
    expect(yaml).not_to_have_value(contains("elastic"))
    expect(yaml).not_to_have_value(contains("max"))
    expect(yaml).not_to_have_value(contains("mode"))


def test_a_field_that_says_what_cannot_be_is_shown_with_what_is_wrong(form: Page) -> None:
    form.fill("#yaml", "name: x\nframework: torch\nroles: {trainer: {replicas: 2, max: 4}}")
    problem = form.locator("[data-error-for='roles.trainer.max']")
    expect(problem).to_contain_text("meet once")
    assert shown(form, "[data-path='roles.trainer.max']", "#mode") == [True, False]


def test_whether_it_is_elastic_can_be_left_to_the_bounds(form: Page) -> None:
    yaml = form.locator("#yaml")
    form.select_option("#elastic", "false")
    expect(yaml).to_have_value(contains("elastic: false"))
    form.select_option("#elastic", "")
    expect(yaml).not_to_have_value(contains("elastic"))
