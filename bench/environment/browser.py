"""Debian's Chromium on a page of the portal, for rows about what a user sees."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bench.environment.servers import Absent, program

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

# For root and a machine without a graphics card, such as a server.
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
_WAIT_MILLISECONDS = 60_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Provide a browser inside the block. Raises Absent."""
    path = program("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise Absent("playwright is not installed") from None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def signed_in(browser: Browser, address: str, name: str, password: str) -> BrowserContext:
    """Return a new browser profile, signed in. Only resources of the sign-in page are cached."""
    context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(_WAIT_MILLISECONDS)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/jobs")
    page.close()
    return context


def page_megabytes() -> float:
    """Return the private memory (PSS) of the largest renderer of this process's browsers, in MB."""
    found = []
    for pid in _renderers():
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            found.append(next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024)
    return max(found)


def _renderers() -> Iterator[int]:
    """Yield the renderers of all browsers that this process started."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"--type=renderer" in (entry / "cmdline").read_bytes() and _is_ours(int(entry.name)):
                yield int(entry.name)


def _is_ours(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False
