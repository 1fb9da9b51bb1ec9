"""S5: a log of 5,000,000 lines in a browser: opened at its end, searched as a whole, and the memory of the page.

Opening is from the start of the navigation of a new tab until the last line is in the document. The search is for a
text that occurs once, on one of the first lines: from the last key press until the line is shown as found. Memory is
that of the tab's process after 100 pages were fetched while scrolling up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.environment import browser, stage
from bench.environment.servers import Absent
from bench.report import Row, at_most, missed
from bench.scale import scale

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

LINES, BLOCK, ROUNDS, PAGES = scale(5_000_000, 50_000), 5_000, 5, scale(100, 3)
NEEDLE, NEEDLE_AT = "needle in line", 1_234
OPEN_GOAL_S, SEARCH_GOAL_S, MEMORY_GOAL_MB = 1.0, 3.0, 200.0
_SEARCH_PATIENCE_MS = 120_000
_LAST = """
(text) => [...document.querySelectorAll("log-view .log-row")].some((row) => row.textContent.includes(text))
  ? performance.now() : false
"""
_FOUND = """
() => {
  const text = document.querySelector("log-view .counter").textContent;
  return /^1\\/1/.test(text) ? performance.now() : false;
}
"""
# Records the page's progress messages during the search.
_WATCH_COUNTER = """
() => {
  window.__said = [];
  const counter = document.querySelector("log-view .counter");
  new MutationObserver(() => window.__said.push(counter.textContent)).observe(counter,
    {childList: true, characterData: true, subtree: true});
}
"""


def measure() -> Iterator[Row]:
    try:
        with stage.seen_by_viewer(_fill) as (job, address), browser.chromium() as chromium:
            context = browser.signed_in(chromium, address, stage.VIEWER, stage.PASSWORD)
            yield from _rows(context, job.id)
    except Absent as error:
        yield missed("S5", f"log of {LINES:,} lines in the browser", f"<= {OPEN_GOAL_S:g} s", str(error))


def _fill(job: stage.RunningJob) -> None:
    from jobs.streams import store

    for start in range(1, LINES + 1, BLOCK):
        rows = [(1.7e9 + n / 1000, "stdout", _text(n)) for n in range(start, start + BLOCK)]
        store.append_logs(job_id=job.id, attempt=job.attempt, replica="trainer-0", first=start, lines=rows)


def _text(number: int) -> str:
    if number == NEEDLE_AT:
        return f"{NEEDLE} {number}"
    return f"line {number}: pass 3, step {number * 7 % 10_007}, cost {1 / number:.9f}, 512 records/s"


def _rows(context: BrowserContext, job: str) -> Iterator[Row]:
    opened = [_open(context, job) for _ in range(ROUNDS)]
    yield at_most("S5", f"log of {LINES:,} lines: opened at its end, s", median(opened), OPEN_GOAL_S)
    searches = [_search(context, job) for _ in range(ROUNDS)]
    seconds, progress = median(one for one, _ in searches), all(shown for _, shown in searches)
    note = "" if seconds <= SEARCH_GOAL_S else f"progress is {'' if progress else 'not '}shown"
    met = seconds <= SEARCH_GOAL_S or progress
    yield Row("S5", "the same: searched as a whole, s", seconds, f"<= {SEARCH_GOAL_S:g} or progress", met, note=note)
    page = context.new_page()
    page.goto(f"/n/bench/jobs/{job}")
    page.wait_for_function(_LAST, arg=f"line {LINES}:")
    _scroll_up(page)
    note = f"after {PAGES} pages on the way up"
    yield at_most("S5", "the same: memory of the page, MB", browser.page_megabytes(), MEMORY_GOAL_MB, note=note)


def _open(context: BrowserContext, job: str) -> float:
    page = context.new_page()
    page.goto(f"/n/bench/jobs/{job}", wait_until="commit")
    shown = page.wait_for_function(_LAST, arg=f"line {LINES}:", polling="raf").json_value()
    page.close()
    return float(shown) / 1000


def _search(context: BrowserContext, job: str) -> tuple[float, bool]:
    """Return the seconds until it is found, and whether the page showed progress before."""
    page = context.new_page()
    page.goto(f"/n/bench/jobs/{job}")
    page.wait_for_function(_LAST, arg=f"line {LINES}:")
    page.evaluate(_WATCH_COUNTER)
    page.locator("log-view input[type=search]").fill(NEEDLE)
    begun = time.perf_counter()
    page.wait_for_function(_FOUND, polling="raf", timeout=_SEARCH_PATIENCE_MS)
    seconds = time.perf_counter() - begun
    messages: list[Any] = page.evaluate("() => window.__said")
    page.close()
    return seconds, any(text and not str(text).startswith("1/1") for text in messages)


def _scroll_up(page: Page) -> None:
    for _ in range(PAGES):
        page.evaluate("""() => {
          const scroller = document.querySelector("log-view .log-scroller");
          scroller.dispatchEvent(new WheelEvent("wheel", {deltaY: -100}));
          scroller.scrollTop = 0;
        }""")
        page.wait_for_timeout(100)
