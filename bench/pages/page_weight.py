"""P5: bytes of a first visit to the page of a job, as transferred over HTTP, and where the chart library is loaded.

Chromium, with an empty cache, counts what it receives (compressed bodies and headers) until the network is idle. The
chart library is a script that contains Plotly; only pages with charts may load one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.environment import browser, stage
from bench.environment.servers import Absent
from bench.report import Row, at_most, missed

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Response

GOAL_KB = 700.0
_LIBRARY = "plotly"
_SETTLE_MILLISECONDS = 3000


def measure() -> Iterator[Row]:
    case = "job page, first visit, compressed: KB"
    try:
        with stage.seen_by_viewer(_fill) as (job, address), browser.chromium() as chromium:
            contexts = (browser.signed_in(chromium, address, stage.VIEWER, stage.PASSWORD) for _ in range(10))
            visits = {path: _visit(next(contexts), path) for path in (*_others(), f"/n/bench/jobs/{job.id}")}
    except Absent as error:
        yield missed("P5", case, f"<= {GOAL_KB:g}", str(error))
        return
    *others, (_path, own) = visits.items()
    if not own.loads_charts:
        raise RuntimeError("the page of the job loads no chart library: this measurement does not recognise it")
    yield at_most("P5", case, own.bytes / 1000, GOAL_KB, note=f"{own.requests} requests")
    wrong = [path for path, visit in others if visit.loads_charts]
    heaviest = max(visit.bytes for _, visit in others) / 1000
    note = ", ".join(wrong) or f"the heaviest of them has {heaviest:.0f} KB"
    case = f"of {len(others)} other pages: those that load the chart library"
    yield Row("P5", case, len(wrong), "0", not wrong, note=note)


def _others() -> tuple[str, ...]:
    return ("/", "/n/bench/jobs", "/n/bench/jobs/new", "/n/bench/datasets", "/n/bench/quota")


def _fill(job: stage.RunningJob) -> None:
    from jobs.streams import store

    now = time.time()
    lines = [(now, "stdout", f"line {number}") for number in range(1000)]
    points = [(now, float(number), "cost", 1 / (number + 1)) for number in range(1000)]
    store.append_logs(job_id=job.id, attempt=job.attempt, replica="trainer-0", first=1, lines=lines)
    store.append_metrics(job_id=job.id, attempt=job.attempt, replica="trainer-0", first=1, points=points)


@dataclass
class _Visit:
    bytes: int = 0
    requests: int = 0
    loads_charts: bool = False


def _visit(context: BrowserContext, path: str) -> _Visit:
    """Make a first visit in a profile with an empty cache."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.clearBrowserCache")
    answers: list[Response] = []

    def note(answer: Response) -> None:
        answers.append(answer)

    page.on("response", note)
    answer = page.goto(path)
    if answer is None or answer.status != 200:
        raise RuntimeError(f"{path} was answered with status {answer.status if answer else 0}")
    page.wait_for_timeout(_SETTLE_MILLISECONDS)
    visit = _Visit()
    for each in answers:
        sizes = each.request.sizes()
        visit.bytes += sizes["responseBodySize"] + sizes["responseHeadersSize"]
        visit.requests += 1
        if each.request.resource_type == "script" and _LIBRARY in each.text().lower()[:200_000]:
            visit.loads_charts = True
    context.close()
    return visit
