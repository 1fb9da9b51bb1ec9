"""Training from a notebook against a running portal, and the shipped tutorials."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import nbformat
import pytest

from regatta import Client, Iteration
from regatta.watching.watching import Watching
from tests.end_to_end.support import code, kernel
from tests.end_to_end.support.portal import ROOT, RunningPortal
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
OF_TORCH = "4_pytorch"
END_SECONDS = 90.0

LOAD = """\
%load_ext regatta
import matplotlib.pyplot as plt
import numpy as np
STEPS = 5
steps = []
def squares(n):
    return np.arange(n) ** 2
def draw(iteration):
    steps.append(iteration.step)
    plt.plot(steps)
    if iteration.step == 4:
        raise ValueError("no more")
"""
TRAIN = """\
%%train --trainers 1 --pservers 0 --framework command -p lr=0.5 --on-iteration draw
import os
for step, square in enumerate(squares(STEPS), start=1):
    print(f"step {step} cost {square * lr}", flush=True)
np.savez(os.path.join(os.environ["REGATTA_OUTPUT_DIR"], "model.npz"), lr=lr)
"""
FAIL = """\
%%train --trainers 1 --pservers 0 --as failed
def divide():
    return 1 / 0
divide()
"""


class Screen:
    """Keeps nothing: the test looks at the iterations."""

    def show(self, html: str, text: str, *, final: bool) -> None: ...


def test_a_cell_becomes_a_job_with_its_figure_its_callback_and_its_model(
    running_portal: RunningPortal, tmp_path: Path
) -> None:
    after = "print(job.state, steps, float(job.model()['lr']), failed.state, 'def squares' in job.code)"
    notebook = kernel.execute(kernel.of_cells(LOAD, TRAIN, FAIL, after), running_portal, tmp_path)
    _, train, fail, last = notebook.cells
    assert "SUCCEEDED [1.0, 2.0, 3.0, 4.0] 0.5 FAILED True" in kernel.text_of(last), kernel.text_of(train)
    pictures = [output.data for output in train.outputs if "data" in output]
    assert any("<polyline" in data.get("text/html", "") for data in pictures)
    assert sum("image/png" in data for data in pictures) == 1, "drawings replace each other"
    assert kernel.text_of(train).count("ValueError: no more") == 1
    assert 'File "Cell In[1]", line 12, in draw' in kernel.text_of(train)
    assert "Cell In[3], line 4, in <module>" in kernel.text_of(fail)
    assert "Cell In[3], line 3, in divide" in kernel.text_of(fail)


@pytest.mark.invariant("The callback of a notebook gets every point once and in order while the portal is killed.")
def test_a_callback_gets_every_point_once_and_in_order_across_a_killed_portal(
    running_portal: RunningPortal, portal: Client
) -> None:
    job = portal.jobs.submit(code.slow("watched"))
    seen: list[Iteration] = []
    watching = Watching(job, seen.append, screen=Screen()).start()
    until("it reports", lambda: len(seen) >= 5, 60)
    running_portal.crash()
    running_portal.start()
    running_portal.release(job.id)
    assert watching.thread is not None
    watching.thread.join(END_SECONDS)
    assert watching.job.state == "SUCCEEDED"
    costs = [(point.seq, point.replica, point.step, point.value) for point in job.points("cost")]
    assert [(each.seq, each.replica, each.step, each.cost) for each in seen] == costs
    assert len({(replica, step) for _, replica, step, _ in costs}) == len(costs) > 5


@pytest.mark.parametrize("file", TUTORIALS, ids=lambda file: file.stem)
def test_a_tutorial_runs(file: Path, running_portal: RunningPortal, tmp_path: Path) -> None:
    if file.stem == OF_TORCH and importlib.util.find_spec("torch") is None:
        pytest.skip("group torch: torch is not installed (pip install torch==2.13.0)")
    notebook = kernel.execute(nbformat.read(file, as_version=4), running_portal, tmp_path)
    assert not [
        output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == "error"
    ]
