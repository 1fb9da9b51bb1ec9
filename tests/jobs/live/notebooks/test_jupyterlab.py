"""The real JupyterLab in a browser, opened at the portal and served through the proxy."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from playwright.sync_api import Page

from jobs.control.errors import ControlError
from jobs.control.replica_http import get_json
from jobs.models import Notebook
from jobs.notebooks import access
from tests.jobs.agents import REPLICA, running_agent
from tests.jobs.live.notebooks.conftest import Web, running_portal
from tests.jobs.live.notebooks.hostile_server import HostileServer
from tests.personas import Personas, session_of
from tests.runtime.notebook.notebook_server import NotebookServer
from tests.waiting import until

pytest.importorskip("jupyterlab")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.processes,
    # A busy machine takes minutes to load JupyterLab.
    pytest.mark.timeout(400),
]
PATIENCE = 90_000


@pytest.fixture
def lab(notebook: Notebook, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Web]:
    assert notebook.job is not None
    attempt = str(notebook.job.attempts.get().pk)
    base = access.base_url("team", notebook.pk)
    with (
        tempfile.TemporaryDirectory(prefix="nb-") as short,
        running_agent(Path(short) / "r", attempt, monkeypatch, settings) as agent,
    ):
        home = agent.directory / "home"
        home.mkdir()
        NotebookServer(home, agent.temporary).write("a.ipynb", "print(6 * 7)")
        environment = {
            "PYTHONPATH": str(Path(__file__).parents[4]),
            "TMPDIR": str(agent.temporary),
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "REGATTA_NOTEBOOK_BASE_URL": base,
            "REGATTA_NOTEBOOK_HOME": str(home),
            "REGATTA_NOTEBOOK_NAME": "book",
        }
        process = subprocess.Popen([sys.executable, "-m", "runtime.notebook"], env=environment)
        listening = socket.create_server(("127.0.0.1", 0))
        settings.PORT = listening.getsockname()[1]
        try:
            until("the server answers", lambda: answers(notebook, base), 60)
            with running_portal(listening):
                yield Web(settings.PORT, notebook, HostileServer())
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def answers(notebook: Notebook, base: str) -> bool:
    from jobs.selectors.attempts import present_attempt, ref_of

    assert notebook.job is not None
    attempt = present_attempt(notebook.job)
    assert attempt is not None
    try:
        found = get_json(ref_of(notebook.job, attempt), REPLICA, access.SOCKET, f"{base}regatta/activity", 5.0)
    except ControlError:
        return False
    return found["busy"] is False


def has_begun(page: Page) -> bool:
    """Press the keys, and return whether the prompt has changed: a page that still loads may lose them."""
    page.click(".jp-CodeCell .cm-content")
    page.keyboard.press("Control+Enter")
    return page.inner_text(".jp-CodeCell .jp-InputPrompt").strip() != "[ ]:"


def test_a_cell_runs_in_jupyterlab_behind_the_proxy(page: Page, people: Personas, lab: Web) -> None:
    page.set_default_timeout(PATIENCE)
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    failed: list[str] = []
    page.on("response", lambda got: failed.append(f"{got.status} {got.url}") if got.status >= 400 else None)
    session = session_of(people.developer)
    page.context.add_cookies([{"name": django_settings.SESSION_COOKIE_NAME, "value": session, "url": lab.portal}])
    page.goto(f"{lab.portal}{lab.base}lab/tree/a.ipynb")
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
    page.wait_for_selector(".jp-Spinner", state="detached")
    # Without a kernel the keys open a dialog that selects one.
    page.wait_for_selector(".jp-Toolbar-kernelName >> text=Python 3")
    until("the page has begun to run the cell", lambda: has_begun(page), 60)
    page.wait_for_selector(".jp-OutputArea-output >> text=42")
    assert hosts <= {lab.host, f"127.0.0.1:{lab.port}", ""}, "no other host"
    assert failed == []
