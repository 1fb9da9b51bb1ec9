"""Notebooks that become job files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.selectors import specifications
from regatta.cli import main
from regatta.errors import BadFile
from regatta.notebook.convert import convert
from regatta.notebook.errors import CaptureError, CellSyntaxError

LOSS = "import numpy as np\n\nSCALE = 2\n\ndef loss(x):\n    return SCALE * np.sum(x)"
OPTIONS = "%%train --name digits --trainers 4 --dataset public/digits -p lr=0.1 -e LEVEL=2"
TRAIN = f"{OPTIONS}\nfrom runtime import dist\nloss(lr)"


def notebook(folder: Path, *cells: str | dict[str, Any]) -> Path:
    """Write a notebook. A cell is its text, or the fields of its JSON."""
    made = [{"source": each} if isinstance(each, str) else each for each in cells]
    body = {"cells": [{"cell_type": "code", "metadata": {}, **each} for each in made], "nbformat": 4}
    file = folder / "My notebook.ipynb"
    file.write_text(json.dumps(body))
    return file


def code_of(file: Path, **options: Any) -> str:
    spec = convert(file, **options).spec
    return str(spec["files"]["train.py"])


def test_all_cells_become_a_program_that_the_portal_accepts(tmp_path: Path) -> None:
    made = convert(notebook(tmp_path, LOSS, {"cell_type": "markdown", "source": "# Title"}, "print(loss([1]))"))
    assert specifications.parse(made.spec).name == "my-notebook"
    assert made.spec["framework"] == "command"
    exec(compile(made.spec["files"]["train.py"], "train.py", "exec"), {})


def test_a_train_cell_gives_the_options_and_takes_only_what_it_uses(tmp_path: Path) -> None:
    unused = "import pandas\ntable = pandas.read_csv('x.csv')"
    spec = convert(notebook(tmp_path, LOSS, unused, TRAIN, "job.plot()")).spec
    parsed = specifications.parse(spec | {"dataset": ""})
    assert (spec["name"], parsed.framework, parsed.trainer.replicas) == ("digits", "native", 4)
    assert spec["env"] == {"LEVEL": "2", "PARAM_lr": "0.1"}
    code = spec["files"]["train.py"]
    assert ["SCALE = 2" in code, "def loss" in code, "pandas" in code, "plot" in code] == [True, True, False, False]


def test_changes_of_an_object_that_is_used_are_kept(tmp_path: Path) -> None:
    code = code_of(
        notebook(tmp_path, "a = []\nb = {}\nc = []", "a.append(1)\nb['x'] = 2\nc.append(3)", "%%train\na, b")
    )
    assert ["a.append(1)" in code, "b['x'] = 2" in code, "c.append(3)" in code] == [True, True, False]


def test_skipped_cells_and_magics_are_left_out_with_a_remark(tmp_path: Path) -> None:
    skipped = {"source": "import regatta", "metadata": {"tags": ["skip"]}}
    made = convert(notebook(tmp_path, skipped, "%matplotlib inline\nx = 5\nx = x\\\n%2\n!ls", "%%bash\nls", "print(x)"))
    assert made.remarks == [
        "cell 1: left out, because it has the tag skip.",
        "cell 2, line 1: left out, because it runs only in a notebook: %matplotlib inline",
        "cell 2, line 5: left out, because it runs only in a notebook: !ls",
        "cell 3: left out, because %%bash runs only in a notebook.",
    ]
    namespace: dict[str, Any] = {}
    exec(made.spec["files"]["train.py"], namespace)
    assert namespace["x"] == 1


def test_installed_packages_become_requirements(tmp_path: Path) -> None:
    file = notebook(tmp_path, "%pip install -q pandas==2.3.3 'scikit-learn>=1.5'\nimport pandas", "!pip install rich")
    assert convert(file).spec["requirements"] == ["pandas==2.3.3", "scikit-learn>=1.5", "rich"]


def test_of_several_train_cells_one_is_chosen(tmp_path: Path) -> None:
    file = notebook(tmp_path, "%%train --name one\n1", "%%train --name two\n2")
    with pytest.raises(BadFile, match=r"Choose one of the %%train cells with --cell NUMBER.*: 1, 2\."):
        convert(file)
    assert convert(file, cell=2).spec["name"] == "two"


@pytest.mark.parametrize(
    ("cells", "error", "said"),
    [
        (["x = = 1"], CellSyntaxError, "cell 1, line 1"),
        (["x = 1", "%%train\ny = = 1"], CellSyntaxError, "cell 2, line 2"),
        (["display(1)"], CaptureError, "`display` is not defined in the cells of the job"),
        (["import regatta"], CaptureError, "A job cannot submit jobs. Add the tag skip"),
        (["%%train --trainers x\n1"], CaptureError, "%%train"),
    ],
)
def test_what_cannot_run_in_a_job_is_named(cells: list[str], error: type[Exception], said: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=said):
        convert(notebook(tmp_path, *cells))


def test_a_file_that_is_no_notebook_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text("{}")
    with pytest.raises(BadFile, match="is not a notebook in the format 4"):
        convert(tmp_path / "a.ipynb")


def test_the_command_writes_a_job_file_and_prints_the_remarks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "job.yaml"
    assert main(["notebook", "convert", str(notebook(tmp_path, "%time\nprint(1)")), "-o", str(target)]) == 0
    assert specifications.parse(yaml.safe_load(target.read_text())).entrypoint == "python train.py"
    assert "cell 1, line 1: left out" in capsys.readouterr().err
