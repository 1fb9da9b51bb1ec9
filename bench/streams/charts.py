"""S4: the chart of a run of 1,000,000 steps: the server's response, the first paint in a browser, and a live update.

The points are in the database as agents' batches left them. The response of 1,000 buckets is requested over HTTP from
one web process; the time of the first response after a start, which reads all points once, is in the note. First paint
is from the start of the navigation of a new tab until the curve is in the document. A live update is one call of the
chart's drawing, while points arrive. The peer is Plotly with all points and one more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import httpx

from bench.environment import browser, stage
from bench.environment.servers import Absent
from bench.report import Row, at_most, missed
from bench.scale import scale
from bench.streams.ingest import Sender

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

STEPS, BLOCK, ROUNDS, ANSWERS = scale(1_000_000, 20_000), 10_000, 5, 25
ANSWER_GOAL_MS, PAINT_GOAL_S, UPDATE_GOAL_MS = 30.0, 1.5, 50.0
_UPDATES = scale(10, 3)
_PAINTED = """
() => {
  const line = document.querySelector("metric-chart .scatterlayer path.js-line");
  return line && line.getAttribute("d") ? performance.now() : false;
}
"""
_TIME_DRAWING = """
() => {
  window.__drawn = [];
  const chart = customElements.get("metric-chart").prototype;
  const draw = chart.draw;
  chart.draw = function (...given) {
    const begun = performance.now();
    draw.apply(this, given);
    window.__drawn.push(performance.now() - begun);
  };
}
"""
_PEER = """
async ([count, rounds]) => {
  const x = Float64Array.from({length: count}, (_, i) => i), y = x.map((v) => 1 / (v + 1) + Math.sin(v) / 10);
  const trace = (n) => [{x: x.subarray(0, n), y: y.subarray(0, n), mode: "lines", type: "scatter"}];
  const box = document.body.appendChild(document.createElement("div"));
  await Plotly.newPlot(box, trace(count - rounds));
  const taken = [];
  for (let i = 1; i <= rounds; i += 1) {
    const begun = performance.now();
    await Plotly.react(box, trace(count - rounds + i), {datarevision: i});
    taken.push(performance.now() - begun);
  }
  return taken;
}
"""


def measure() -> Iterator[Row]:
    with stage.seen_by_viewer(_fill) as (job, address):
        first, answer = _answers(address, job.id)
        case = f"answer of 1,000 buckets of {STEPS:,} steps: ms"
        yield at_most("S4", case, 1000 * answer, ANSWER_GOAL_MS, note=f"the first after a start {1000 * first:.0f} ms")
        try:
            with browser.chromium() as chromium:
                yield from _in_browser(chromium, address, job)
        except Absent as error:
            yield missed("S4", "first paint and live update in the browser", f"<= {PAINT_GOAL_S:g} s", str(error))


def _fill(job: stage.RunningJob) -> None:
    from jobs.streams import store

    for start in range(0, STEPS, BLOCK):
        rows = [(1.7e9 + n / 100, float(n), "cost", 1 / (n + 1)) for n in range(start, start + BLOCK)]
        store.append_metrics(job_id=job.id, attempt=job.attempt, replica="trainer-0", first=start + 1, points=rows)


def _answers(address: str, job: str) -> tuple[float, float]:
    """Return the seconds of the first response, and the median of later ones."""
    (token,) = stage.tokens(1)
    times = []
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        for _ in range(ANSWERS + 1):
            begun = time.perf_counter()
            body = http.get(f"/api/v1/jobs/{job}/metrics", params={"keys": "cost", "buckets": 1000})
            times.append(time.perf_counter() - begun)
            if sum(body.json()["series"]["cost"]["count"]) != STEPS:
                raise RuntimeError("the chart does not count all points")
    return times[0], median(times[1:])


def _in_browser(chromium: Browser, address: str, job: stage.RunningJob) -> Iterator[Row]:
    context = browser.signed_in(chromium, address, stage.VIEWER, stage.PASSWORD)
    paints = [_paint_seconds(context, job.id) for _ in range(ROUNDS)]
    yield at_most("S4", f"first paint of the chart of {STEPS:,} steps in Chromium: s", median(paints), PAINT_GOAL_S)
    updates = _update_milliseconds(context, address, job)
    peer = median(_peer_milliseconds(chromium))
    value = median(updates)
    case = f"live update in Chromium, ms; peer: Plotly given {STEPS:,} points"
    goal = f"<= {UPDATE_GOAL_MS:g}"
    yield Row("S4", case, value, goal, value <= UPDATE_GOAL_MS, peer, value / peer)


def _paint_seconds(context: BrowserContext, job: str) -> float:
    page = context.new_page()
    page.goto(f"/n/bench/jobs/{job}", wait_until="commit")
    painted = page.wait_for_function(_PAINTED, polling="raf").json_value()
    page.close()
    return float(painted) / 1000


def _update_milliseconds(context: BrowserContext, address: str, job: stage.RunningJob) -> list[float]:
    page = context.new_page()
    page.goto(f"/n/bench/jobs/{job.id}")
    page.wait_for_function(_PAINTED, polling="raf")
    page.wait_for_timeout(2000)
    page.evaluate(_TIME_DRAWING)
    sender = Sender(address, str(job.attempt.pk), job.agent)
    sender.skip("points", STEPS)
    for number in range(_UPDATES):
        step = float(STEPS + number)
        sender.points([(time.time(), step, "cost", 1 / (step + 1))])
        page.wait_for_timeout(1000)
    drawn: list[float] = page.evaluate("() => window.__drawn")
    page.close()
    if not drawn:
        raise RuntimeError("the chart was not drawn while points arrived")
    return drawn


def _peer_milliseconds(chromium: Browser) -> list[float]:
    import plotly

    page = chromium.new_page()
    page.goto("about:blank")
    page.add_script_tag(path=Path(plotly.__file__).parent / "package_data" / "plotly.min.js")
    taken: list[float] = page.evaluate(_PEER, [STEPS, ROUNDS])
    page.close()
    return taken
