"""Debian's Chromium for every test that needs a browser, and a watch over what its pages complain of.

Whatever starts a browser does it here, so that no test passes while the content security policy refuses something.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

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
# Runs before each page's own scripts; what is reported outlives the page that it was on.
_REPORT = """
document.addEventListener("securitypolicyviolation", (event) => window.__reportViolation(
  `${location.pathname}: ${event.violatedDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser, until the block ends."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=ARGUMENTS)
        yield browser
        browser.close()


class Watch:
    """Over all pages of a browser's context. ``violations``: what the policy refused, by the page's own report and by
    the browser's console."""

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
