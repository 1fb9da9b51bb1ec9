"""Debian's Chromium for every browser test, with a watch for errors of its pages.

All tests start a browser through this module, so that no test passes while the content security policy refuses
something.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

EXECUTABLE = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Runs before each page's own scripts; reports outlive their page.
_REPORT = """
document.addEventListener("securitypolicyviolation", (event) => window.__reportViolation(
  `${location.pathname}: ${event.violatedDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Provide a browser inside the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=ARGUMENTS)
        yield browser
        browser.close()


class SharedBrowser:
    """A browser for successive tests, each of which opens contexts of its own. It is started when it is first needed.

    Its driver runs a loop in this thread, which Django would take for an error: until it is closed, Django permits it.
    """

    def __init__(self) -> None:
        self._running = contextlib.ExitStack()
        self._browser: Browser | None = None

    def get(self) -> Browser:
        """Return the browser; a new one if the former has crashed."""
        if self._browser is not None and not self._browser.is_connected():
            self.close()
        if self._browser is None:
            patch = self._running.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
            self._browser = self._running.enter_context(chromium())
        return self._browser

    def close(self) -> None:
        self._browser = None
        self._running.close()


class Watch:
    """Watches all pages of a browser context.

    ``violations`` are refusals of the content security policy, from the page's own reports and the browser's console.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.violations: list[str] = []
        context.expose_binding("__reportViolation", lambda _, report: self.violations.append(report))
        context.add_init_script(_REPORT)
        context.on("page", self._listen)

    def _listen(self, page: Page) -> None:
        page.on("console", lambda message: self._note(message.text))

    def _note(self, text: str) -> None:
        if "Content Security" in text:
            self.violations.append(text)
