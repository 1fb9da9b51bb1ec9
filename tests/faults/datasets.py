"""A small dataset: one chunk for each task, each record a number."""

from __future__ import annotations

import json
from pathlib import Path

from runtime.data import record_codec, recordio

NAME = "faults/numbers"
FILE = "train-00000-of-00000.recordio"


def make(root: Path, tasks: int, records_a_task: int = 1) -> Path:
    """Write it below a search path; return the file of its records."""
    directory = root / NAME
    directory.mkdir(parents=True)
    path = directory / FILE
    with path.open("wb") as file, recordio.Writer(file) as writer:
        for number in range(tasks * records_a_task):
            writer.write(record_codec.encode([number, 1.0], number))
            if (number + 1) % records_a_task == 0:
                writer.flush()
    count = tasks * records_a_task
    body = {
        "title": "Numbers",
        "task": "regression",
        "features": {"shape": [2]},
        "source": "made by the test",
        "licence": "CC0",
        "splits": {"train": {"records": count, "files": [{"path": FILE}]}},
    }
    (directory / "dataset.json").write_text(json.dumps(body))
    return path
