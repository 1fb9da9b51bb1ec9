"""External sign-in in a real browser: the policy of the pages allows it, without console errors."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page
from pytest_django.live_server_helper import LiveServer

from tests.servers.sign_in_provider import Provider, configure


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_a_person_comes_in_through_each_provider(page: Page, live_server: LiveServer, settings) -> None:
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
