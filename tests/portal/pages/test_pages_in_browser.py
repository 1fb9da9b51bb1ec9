"""Pages in a real browser: the scripts load under the policy, and the content is shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page
from pytest_django.live_server_helper import LiveServer

from rbac.services import ensure_personal_namespace
from tests.browser import Watch
from tests.factories import make_job, make_user

PASSWORD = "a-long-enough-one"


def until(what: str, is_so: Callable[[], bool], page: Page, seconds: float = 10) -> None:
    """Process the browser's messages until the condition holds."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        page.wait_for_timeout(20)


@pytest.mark.invariant("No page requests anything that its content security policy refuses.")
@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_sign_in_shows_the_list_without_a_complaint_of_the_policy(page: Page, live_server: LiveServer) -> None:
    user = make_user("ada", password=PASSWORD)
    make_job(ensure_personal_namespace(user), user, name="digits-of-ada")
    page.goto(live_server.url)
    page.fill("#username", "ada")
    page.fill("#password", PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_selector("text=digits-of-ada")
    assert page.url == f"{live_server.url}/n/ada/jobs"
    page.wait_for_selector("time[data-relative]:has-text('ago')")


@pytest.mark.invariant("No page requests anything that its content security policy refuses.")
@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_policy_violations_are_noticed_even_after_the_page_is_left(
    page: Page, watch: Watch, live_server: LiveServer
) -> None:
    page.goto(f"{live_server.url}/sign-in")
    page.evaluate("() => { document.body.append(Object.assign(document.createElement('script'), {text: '1'})); }")
    page.goto(f"{live_server.url}/sign-up")
    # The page's own report may be lost when the browser leaves the page; the console's never is, but may arrive later.
    until("it is reported", lambda: any("script-src" in violation for violation in watch.violations), page)
    until(
        "the console reports it", lambda: any("Content Security" in violation for violation in watch.violations), page
    )
    watch.violations.clear()


@pytest.mark.invariant("No page requests anything that its content security policy refuses.")
def test_no_test_starts_an_unwatched_browser() -> None:
    tests = Path(__file__).resolve().parent.parent.parent
    driver = "sync_" + "playwright"
    assert [path.name for path in tests.rglob("*.py") if driver in path.read_text()] == ["browser.py"]
