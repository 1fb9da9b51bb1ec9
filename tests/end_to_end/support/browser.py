"""A user at a browser: their actions, and the errors that the browser reports meanwhile."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.browser import Watch
from tests.end_to_end.support.portal import ADMIN, PASSWORD, ROOT, RunningPortal

# Timeout for what a page shall show eventually: replicas may start slowly on a busy machine.
WAIT_MILLISECONDS = 60_000
expect.set_options(timeout=WAIT_MILLISECONDS)
SCREENSHOTS = ROOT / "build" / "screenshots"

# Runs before the page's own scripts: records its sockets so that a test can cut them.
_SOCKETS = """
window.__sockets = [];
window.WebSocket = class extends WebSocket {
  constructor(...given) { super(...given); window.__sockets.push(this); }
};
"""
# Cuts the socket and, once it is closed, sends the page the event that the network is back, like a browser.
_CUT = """
() => new Promise((resolve) => {
  const socket = window.__sockets.at(-1);
  socket.addEventListener("close", () => setTimeout(() => { dispatchEvent(new Event("online")); resolve(); }, 0));
  socket.close();
})
"""
# Inserts text at the cursor, like a browser when the user pastes.
_PASTE = """
(text) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  document.activeElement.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
}
"""


class Person:
    """One browser profile with one page."""

    def __init__(self, browser: Browser, running_portal: RunningPortal) -> None:
        self.running_portal = running_portal
        # Endless animations are drawn continuously, by this machine's processors.
        self._context = browser.new_context(
            base_url=running_portal.address, viewport={"width": 1280, "height": 900}, reduced_motion="reduce"
        )
        self._context.add_init_script(_SOCKETS)
        self._watch = Watch(self._context)
        self.complaints: list[str] = []
        self.page = self._open()

    def _open(self) -> Page:
        page = self._context.new_page()
        page.set_default_timeout(WAIT_MILLISECONDS)
        page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page

    def leave(self) -> None:
        self._context.close()

    def reopen(self) -> None:
        """Close the tab and open another one at the same address."""
        address = self.page.url
        self.page.close()
        self.page = self._open()
        self.page.goto(address)

    def sign_in(self) -> None:
        self.page.goto("/")
        self.page.get_by_label("Name").fill(ADMIN)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url("**/jobs")

    def paste(self, text: str) -> None:
        """Insert text at the cursor, replacing the selection."""
        self.page.evaluate(_PASTE, text)

    def watch(self, namespace: str, job_id: str) -> None:
        self.page.goto(f"/n/{namespace}/jobs/{job_id}")

    def wait_for_state(self, *states: str, seconds: float = 180) -> str:
        """Wait until the chip shows one of the states."""
        known = " || ".join(f"state === '{state}'" for state in states)
        look = (
            "() => { const state = document.querySelector('[data-state-chip]')?.dataset.state; return (%s) && state; }"
        )
        return str(self.page.wait_for_function(look % known, timeout=seconds * 1000).json_value())

    def wait_for_socket(self) -> None:
        """Wait until the socket is open; by then the page's scripts have run."""
        self.page.wait_for_function("() => window.__sockets.at(-1)?.readyState === 1")

    def cut_socket(self) -> None:
        """Wait until the socket is open, then cut it."""
        self.wait_for_socket()
        self.page.evaluate(_CUT)

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the log on the page, in order, including those out of view."""
        held: list[dict[str, Any]] = self.page.evaluate(
            "() => document.querySelector('log-view').lines.map(({seq, replica, text}) => ({seq, replica, text}))"
        )
        return held

    def shows_line(self, text: str, seconds: float = 30) -> None:
        look = "(text) => document.querySelector('log-view')?.lines?.some((line) => line.text === text)"
        self.page.wait_for_function(look, arg=text, timeout=seconds * 1000)

    def violations(self) -> list[str]:
        """Return what the content security policy has refused on any page of this user."""
        return self._watch.violations

    def real_complaints(self) -> list[str]:
        """Return errors other than the browser's own notes.

        Pages cannot avoid those: a note of a refused request, and of a header that applies to HTTPS only.
        """
        noted = re.compile("status of (409|422)|Cross-Origin-Opener-Policy header has been ignored")
        return [text for text in self.complaints if not noted.search(text)]

    def photograph(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")
