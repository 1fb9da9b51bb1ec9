"""JupyterLab in a browser: outputs of a cell that this page did not start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import chromium
from tests.runtime.notebook.forwarder import Forwarder, forwarding
from tests.runtime.notebook.notebook_server import BASE, NotebookServer, running

pytest.importorskip("jupyterlab")
# A busy machine takes minutes to load JupyterLab.
pytestmark = [pytest.mark.processes, pytest.mark.browser, pytest.mark.timeout(400)]

OUTPUT = "(document.querySelector('.jp-CodeCell .jp-OutputArea')?.innerText ?? '')"
PROMPT = "(document.querySelector('.jp-CodeCell .jp-InputPrompt')?.innerText ?? '')"
# Milliseconds: JupyterLab starts slowly on a busy machine.
PATIENCE = 60_000


class _Lab:
    """JupyterLab pages of one person."""

    def __init__(self, server: NotebookServer, forwarder: Forwarder, browser: Browser) -> None:
        self.server, self.forwarder = server, forwarder
        self._context = browser.new_context()
        self._context.set_default_timeout(PATIENCE)
        self.hosts: set[str] = set()

    def open(self, name: str) -> Page:
        """Open a notebook in a new page, in a workspace of its own: others' notebooks are not opened again."""
        page = self._context.new_page()
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        page.goto(f"http://127.0.0.1:{self.forwarder.port}{BASE}lab/workspaces/{name[0]}/tree/{name}")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell .cm-content")
        return page

    def run_first_cell(self, page: Page) -> None:
        # Before the page has its kernel, JupyterLab executes nothing.
        page.wait_for_selector(".jp-StatusBar-TextItem:has-text('Python 3 | Idle')")
        page.click(".jp-NotebookPanel-toolbar [data-command='notebook:run-cell-and-select-next']")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Lab]:
    home: Path = tmp_path_factory.mktemp("home")
    with running(home) as server, forwarding(server.socket) as forwarder, chromium() as browser:
        yield _Lab(server, forwarder, browser)


def _wait(page: Page, condition: str) -> None:
    page.wait_for_function(f"() => {condition}")


def _go_on(lab: _Lab, name: str) -> str:
    """Return code that prints until a file appears: the test decides when the cell ends."""
    return (
        "import os, time\nn = 0\n"
        f"while not os.path.exists({str(lab.server.home / name)!r}):\n"
        "    print(n, flush=True)\n    n += 1\n    time.sleep(0.05)"
    )


def _lines(page: Page) -> list[str]:
    return str(page.evaluate(OUTPUT)).split()


def test_a_reopened_page_has_every_line_once_and_goes_on_live(lab: _Lab) -> None:
    lab.server.write("a.ipynb", _go_on(lab, "stop-a"))
    first = lab.open("a.ipynb")
    lab.run_first_cell(first)
    _wait(first, f"{OUTPUT}.includes('5\\n')")
    first.close()

    second = lab.open("a.ipynb")
    _wait(second, f"{OUTPUT}.includes('5\\n') && {PROMPT}.includes('*')")
    seen = len(_lines(second))
    _wait(second, f"{OUTPUT}.trim().split('\\n').length > {seen + 5}")
    (lab.server.home / "stop-a").touch()
    _wait(second, f"{PROMPT}.includes('1')")
    lines = _lines(second)
    assert lines == [str(number) for number in range(len(lines))]
    second.close()
    assert lab.hosts == {f"127.0.0.1:{lab.forwarder.port}"}


def test_a_page_whose_connections_were_cut_has_every_line_once(lab: _Lab) -> None:
    lab.server.write("b.ipynb", _go_on(lab, "stop-b"))
    page = lab.open("b.ipynb")
    lab.run_first_cell(page)
    for _ in range(3):
        seen = len(_lines(page))
        _wait(page, f"{OUTPUT}.trim().split('\\n').length > {seen + 5}")
        lab.forwarder.cut()
    (lab.server.home / "stop-b").touch()
    _wait(page, f"{PROMPT}.includes('1')")
    lines = _lines(page)
    assert lines == [str(number) for number in range(len(lines))]
    page.close()


def test_a_page_that_shows_a_huge_output_stays_small_and_responsive(lab: _Lab) -> None:
    lab.server.write("c.ipynb", "for _ in range(300): print(('x' * 99 + '\\n') * 10_000, end='')")
    page = lab.open("c.ipynb")
    lab.run_first_cell(page)
    _wait(page, f"{PROMPT}.includes('1') && {OUTPUT}.includes('were left out')")
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    assert used < 300 << 20
    page.close()
