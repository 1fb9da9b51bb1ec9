"""Notebook files that the platform writes: for a job, for a dataset, and an empty one. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

_MARKDOWN, _CODE = "markdown", "code"
Cell = tuple[str, str]


def empty() -> str:
    """Return a notebook with one empty cell."""
    return _document([(_CODE, "")])


def of_job(job_id: str, name: str, url: str) -> str:
    """Return a notebook that loads the curves, the log and the model of a job."""
    return _document(
        [
            (_MARKDOWN, f"# {name}\n\nThe job [{job_id}]({url}). Its code is in this directory."),
            (_CODE, f'from regatta import Client\n\nportal = Client()\njob = portal.jobs.get("{job_id}")\njob'),
            (_MARKDOWN, "## Curves\n\nA job that still runs adds points while you watch."),
            (_CODE, "job.plot()"),
            (_MARKDOWN, "## The end of the log"),
            (_CODE, "for line in job.last_lines(20):\n    print(line.replica, line.text)"),
            (
                _MARKDOWN,
                "## Files\n\n`job.download(name, target)` downloads one; `job.model()` loads the trained model.",
            ),
            (_CODE, "job.artifacts()"),
        ]
    )


def of_dataset(name: str) -> str:
    """Return a notebook that reads the first records of a dataset."""
    reading = (
        "import itertools, os\n\n"
        "from runtime.data import catalogue\n\n"
        f'info = catalogue.find("{name}", os.environ["REGATTA_DATA_PATH"].split(os.pathsep))\n'
        "chunks = catalogue.chunks(info)\n"
        'print(info.name, "-", len(chunks), "chunks")\n'
        "records = list(itertools.islice(catalogue.read_chunk(chunks[0]), 1000))\n"
        "records[0]"
    )
    return _document(
        [
            (_MARKDOWN, f"# {name}\n\nThe first records of the dataset."),
            (_CODE, reading),
            (_MARKDOWN, "## Train on it\n\n`%%train` turns a cell into a job."),
            (_CODE, "%load_ext regatta"),
        ]
    )


def _document(cells: Sequence[Cell]) -> str:
    body = {
        "cells": [_cell(kind, text, index) for index, (kind, text) in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def _cell(kind: str, text: str, index: int) -> dict[str, object]:
    cell: dict[str, object] = {
        "cell_type": kind,
        "id": f"cell-{index}",
        "metadata": {},
        "source": text.splitlines(keepends=True),
    }
    return {**cell, "execution_count": None, "outputs": []} if kind == _CODE else cell
