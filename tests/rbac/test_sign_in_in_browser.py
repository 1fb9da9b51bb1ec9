"""Signing in through others in a real browser: the policy of the pages lets it, and nothing is complained of."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright
from pytest_django.live_server_helper import LiveServer

from tests.sign_in_provider import Provider, configure

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


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
def test_a_person_comes_in_through_each_provider(page: Page, live_server: LiveServer, settings) -> None:
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if "Content Security" in message.text else None)
    with Provider() as provider:
        configure(settings, provider)
        for button, name in (("Continue with Example", "grace"), ("Continue with Baidu", "xiaoming")):
            provider.person.username = provider.person.sub = name
            page.goto(f"{live_server.url}/sign-in")
            page.get_by_role("button", name=button).click()
            page.wait_for_url(f"{provider.address}/**")
            page.click("#yes")
            page.wait_for_url(f"{live_server.url}/welcome")
            page.wait_for_selector(f"text=Welcome, {name}")
            page.context.clear_cookies()
    assert complaints == []
