"""One look with a real browser: the scripts load under the policy, and what is there is shown."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright
from pytest_django.live_server_helper import LiveServer

from rbac.services import ensure_personal_namespace
from tests.factories import make_job, make_user

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
PASSWORD = "a-long-enough-one"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    # The browser's driver runs a loop in this thread, which Django would take for a mistake.
    monkeypatch.setitem(os.environ, "DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser.new_page(locale="en-GB")
        browser.close()


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_sign_in_shows_the_list_without_a_complaint_of_the_policy(page: Page, live_server: LiveServer) -> None:
    user = make_user("ada", password=PASSWORD)
    make_job(ensure_personal_namespace(user), user, name="digits-of-ada")
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if "Content Security" in message.text else None)
    page.goto(live_server.url)
    page.fill("#username", "ada")
    page.fill("#password", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_selector("text=digits-of-ada")
    assert page.url == f"{live_server.url}/n/ada/jobs"
    page.wait_for_function("document.querySelector('time[data-relative]').textContent.includes('ago')")
    assert complaints == []
