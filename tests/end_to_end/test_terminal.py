"""Terminals into replicas: in a browser, and over the socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.end_to_end.support.browser import Person
from tests.end_to_end.support.portal import RunningPortal
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def job(running_portal: RunningPortal) -> Iterator[Any]:
    """A job whose trainer waits."""
    with running_portal.client() as client:
        spec = {
            "name": "waiting",
            "framework": "command",
            "entrypoint": "sh wait.sh",
            "files": {"wait.sh": "echo up\nexec sleep 600\n"},
            "roles": {"pserver": {"replicas": 0}, "trainer": {"replicas": 1, "cpu": 0.1, "memory": "256Mi"}},
        }
        submitted = client.jobs.submit(spec)
        until("it runs", lambda: any(line.text == "up" for line in submitted.logs()), 60)
        yield submitted
        submitted.cancel()


def test_a_shell_survives_a_reload_and_reaches_the_replica(
    person: Callable[[], Person], job: Any, running_portal: RunningPortal
) -> None:
    ada = person()
    page = ada.page
    page.goto(f"/n/admin/jobs/{job.id}")
    page.get_by_role("button", name="Terminal trainer-0").click()
    screen = page.locator("terminal-view .xterm-rows")
    expect(screen).to_contain_text("trainer-0:")
    page.keyboard.type(
        "X=4$((1+1)); echo [$X] $(basename $PWD); printf '\\033[31mred\\033[38;2;10;160;90m rgb\\033[0m 训练\\n'\n"
    )
    expect(screen).to_contain_text("[42] work")
    expect(screen).to_contain_text("red rgb 训练")
    ada.photograph("terminal")
    page.reload()
    screen = page.locator("terminal-view .xterm-rows")
    expect(screen).to_contain_text("[42] work")
    page.locator("terminal-view textarea").focus()
    page.keyboard.type("echo still-$X; stty size\n")
    expect(screen).to_contain_text("still-42")
    page.keyboard.press("Control+F6")
    expect(page.get_by_role("button", name="Close trainer-0")).to_be_focused()
    page.locator("[data-action=theme]").click()
    page.locator("[data-action=theme]").click()
    ada.photograph("terminal-dark")
