"""Output of an outcome as JSON, as raw CSV data and as an HTML page with charts."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from jobs.elastic.simulation.metrics import KEYS, Outcome


def figures(outcome: Outcome) -> dict[str, object]:
    """Return the main figures under stable names."""
    return {key: getattr(outcome, key) for key in KEYS}


def write_json(outcome: Outcome, path: Path) -> None:
    path.write_text(json.dumps(figures(outcome), indent=2) + "\n", encoding="utf-8")


def write_csv(outcome: Outcome, folder: Path) -> None:
    """Write ``samples.csv`` with a row per moment, and ``jobs.csv`` with a row per job."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = list(outcome.waits)
    services = sorted({name for sample in outcome.samples for name in sample.services})
    with (folder / "samples.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "utilisation", "pending", *(f"service {each}" for each in services), *jobs])
        for sample in outcome.samples:
            counts = [
                *(sample.services.get(each, 0) for each in services),
                *(sample.trainers.get(each, 0) for each in jobs),
            ]
            writer.writerow([f"{sample.at:g}", f"{sample.utilisation:.5f}", sample.pending, *counts])
    with (folder / "jobs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "wait", "completion", "trainers"])
        for name, wait in outcome.waits.items():
            completion = outcome.completions.get(name)
            text = "" if completion is None else f"{completion:.3f}"
            writer.writerow([name, f"{wait:.3f}", text, outcome.trainers.get(name, 0)])


def write_page(outcome: Outcome, path: Path) -> None:
    """Write a self-contained page: the fraction of the cluster in use, trainers by job, and replicas of services."""
    from plotly.graph_objects import Scatter  # takes a second to load
    from plotly.subplots import make_subplots

    titles = ("In use, %", "Trainers by job", "Replicas of services")
    page = make_subplots(rows=3, cols=1, shared_xaxes=True, subplot_titles=titles)
    times = [sample.at for sample in outcome.samples]
    used = [100 * sample.utilisation for sample in outcome.samples]
    page.add_trace(Scatter(x=times, y=used, name="in use", line_shape="hv"), row=1, col=1)
    for name in outcome.waits:
        trainers = [sample.trainers.get(name, 0) for sample in outcome.samples]
        page.add_trace(Scatter(x=times, y=trainers, name=name, stackgroup="jobs", line_shape="hv"), row=2, col=1)
    for name in sorted({name for sample in outcome.samples for name in sample.services}):
        replicas = [sample.services.get(name, 0) for sample in outcome.samples]
        page.add_trace(Scatter(x=times, y=replicas, name=name, line_shape="hv"), row=3, col=1)
    page.update_xaxes(title_text="seconds", row=3, col=1)
    page.write_html(path, include_plotlyjs=True)
