"""A user's own data, from files on a disk to every trainer of a job."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from datasets import messages
from regatta import Client
from regatta.errors import Refused
from tests.messages import pattern

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
END_SECONDS = 90.0
ROWS, FILES, PASSES = 60, 3, 2

# Trains on columns without its own decode=, and prints the rows that it received and what else it can read.
SCRIPT = """\
import os
import numpy as np
from runtime import dist

root = os.environ["REGATTA_DATA_PATH"].split(":")[0]
print("shelf", [name for name in os.listdir(os.path.dirname(root)) if name != os.path.basename(root)], flush=True)
job = dist.init()
p = job.params({"w": np.zeros(2, "f4")}, opt=dist.SGD(1e-6))
for rows in job.steps(job.reader("NAME", batch=7, shuffle=20)):
    for number in rows["id"].tolist():
        print("row", number, flush=True)
    x = np.stack([rows["rooms"], rows["area"]], 1).astype("f4")
    error = x @ p["w"] - rows["price"].astype("f4")
    p.push_pull({"w": x.T @ error / len(x)}, n=len(x))
    job.report(cost=float((error**2).mean()))
"""


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    folder = tmp_path / "houses"
    folder.mkdir()
    for file in range(FILES):
        numbers = range(file * ROWS // FILES, (file + 1) * ROWS // FILES)
        lines = [f"{number},{number % 5},{number * 1.5},{number * 100},street {number}" for number in numbers]
        (folder / f"part-{file}.csv").write_text("\n".join(["id,rooms,area,price,name", *lines, ""]))
    (folder / "NOTES.md").write_text("Where these come from.\n")
    return folder


def spec(name: str, dataset: str) -> dict[str, Any]:
    return {
        "name": "houses",
        "files": {"train.py": SCRIPT.replace("NAME", name)},
        "dataset": dataset,
        "passes": PASSES,
        "roles": {"trainer": {"replicas": 2}},
    }


@pytest.mark.invariant("Each record of an uploaded dataset reaches the trainers exactly once per pass.")
def test_uploaded_csv_reaches_the_trainers_every_record_once_a_pass(portal: Client, houses: Path) -> None:
    own = portal.namespaces.default()
    name = f"{own}/houses"
    version = portal.datasets.upload(name, houses)
    assert (version.state, version.records, version.files) == ("sealed", ROWS, FILES + 1)
    job = portal.jobs.wait(portal.jobs.submit(spec(name, name), namespace=own).id, END_SECONDS)
    assert job.state == "SUCCEEDED", job.why
    texts = [line.text for line in portal.jobs.logs.read(job.id)]
    seen = Counter(int(match[1]) for text in texts if (match := re.fullmatch(r"row (\d+)", text)))
    assert seen == dict.fromkeys(range(ROWS), PASSES)
    assert {text for text in texts if text.startswith("shelf")} == {"shelf []"}
    with pytest.raises(Refused, match=pattern(messages.NO_SEALED_VERSION_NUMBER, name=name, number=9)):
        portal.jobs.submit(spec(name, f"{name}@9"), namespace=own)
