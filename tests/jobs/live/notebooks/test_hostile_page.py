"""A hostile page of a notebook in a browser whose person is signed in to the portal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Page

from jobs.live.notebooks import application
from tests.browser import Watch
from tests.jobs.live.notebooks.conftest import Web
from tests.jobs.live.notebooks.hostile_server import OK
from tests.personas import Personas, session_of

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.processes]
# Each attack gives a text if it succeeds, and "" if it is stopped.
SCRIPT = (Path(__file__).parent / "hostile_page.js").read_text()


@pytest.mark.parametrize("policy", [True, False])
@pytest.mark.invariant("A hostile page of a notebook reads nothing of the portal and does nothing as its reader.")
def test_a_hostile_page_gets_nothing(
    page: Page, watch: Watch, people: Personas, web: Web, policy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not policy:  # the separation of origins is enough by itself
        monkeypatch.setattr(application, "content_security_policy", lambda host: "frame-ancestors 'self'")
    content = f"<!doctype html><script>const PORTAL = {web.portal!r};\n{SCRIPT}</script>".encode()
    web.server.pages["lab"] = OK + b"Content-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)
    session = session_of(people.developer)
    page.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": web.portal}])
    page.goto(f"{web.portal}{web.base}lab")
    assert page.url == f"{web.origin}{web.base}lab", "the person has opened the notebook"
    results: dict[str, Any] = page.evaluate("attacks()")
    assert results.pop("own server") == "200", "the page itself works"
    assert len(results) == 9
    assert {name: got for name, got in results.items() if got} == {}
    assert watch.violations or not policy, "the policy has stopped requests to other hosts"
    watch.violations.clear()
    page.goto(f"{web.portal}/n/team/jobs")
    assert page.url == f"{web.portal}/n/team/jobs", "the person is still signed in"
