"""S1: time from printing a line in a job until it is in the page of the job in a browser.

A whole portal runs a job that prints 100 lines per second, each with its time of printing. Chromium shows the end of
the log on the job's page. A line counts when its row is in the document. Both use the clock of the machine. p50 and p99
are the medians over five windows.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench.environment import browser
from bench.environment.servers import Absent
from bench.pages import start as portal
from bench.report import Row, at_most, missed
from bench.scale import scale

RATE = 100
WINDOWS, WINDOW_SECONDS = 5, scale(10, 2)
P50_GOAL_MS, P99_GOAL_MS = 250.0, 600.0
_CODE = """\
import time
begun = time.monotonic()
for number in range(1_000_000):
    time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
    print(f"n={number} at={time.time():.6f}", flush=True)
"""
# Records each row when it is added to the document: [its sequence number, milliseconds since it was printed].
_OBSERVE = """
() => {
  window.__late = [];
  const seen = new Set();
  const look = () => {
    const now = Date.now();
    for (const row of document.querySelectorAll("log-view .log-row")) {
      const sequence = Number(row.dataset.seq);
      const found = /at=([0-9.]+)/.exec(row.textContent);
      if (seen.has(sequence) || !found) continue;
      seen.add(sequence);
      window.__late.push([sequence, now - 1000 * Number(found[1])]);
    }
  };
  look();
  window.__late = [];
  new MutationObserver(look).observe(document.querySelector("log-view"), {childList: true, subtree: true});
}
"""


def measure() -> Iterator[Row]:
    case = f"printed to shown in the browser, {RATE} lines/s"
    try:
        windows, printed = _windows()
    except Absent as error:
        yield missed("S1", case, f"<= {P50_GOAL_MS:g} / {P99_GOAL_MS:g}", str(error))
        return
    p50, p99 = (median(_quantile(each, share) for each in windows) for share in (0.5, 0.99))
    shown = sum(map(len, windows))
    note = f"{shown} of about {printed} lines were drawn"
    yield at_most("S1", f"{case}: p50, ms", p50, P50_GOAL_MS, note=note)
    yield at_most("S1", f"{case}: p99, ms", p99, P99_GOAL_MS)


def _windows() -> tuple[list[list[float]], int]:
    with (
        tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch,
        portal.running_here(Path(scratch)) as running,
        portal.signed_in(running) as http,
        browser.chromium() as chromium,
    ):
        namespace = portal.namespace_of(http)
        body: dict[str, Any] = {"name": "prints", "files": {"train.py": _CODE.replace("RATE", str(RATE))}}
        job = portal.answer_of(http.post(f"/api/v1/namespaces/{namespace}/jobs", json=body))["id"]
        portal.wait_until(
            http, f"/api/v1/jobs/{job}/logs", lambda page: any("at=" in one["text"] for one in page["lines"])
        )
        context = browser.signed_in(chromium, running.address, "admin", portal.PASSWORD)
        page = context.new_page()
        page.goto(f"/n/{namespace}/jobs/{job}")
        page.wait_for_selector("log-view .log-row")
        page.wait_for_timeout(2000)
        page.evaluate(_OBSERVE)
        windows = []
        begun = time.monotonic()
        for _ in range(WINDOWS):
            page.wait_for_timeout(1000 * WINDOW_SECONDS)
            windows.append([late for _sequence, late in page.evaluate("() => window.__late.splice(0)")])
        printed = round((time.monotonic() - begun) * RATE)
        portal.cancel(http, job)
    return windows, printed


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))] if values else float("inf")
