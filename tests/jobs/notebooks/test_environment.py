"""Packages and files of every notebook."""

from __future__ import annotations

import tomllib
from pathlib import Path

from django.conf import settings
from packaging.requirements import Requirement

from jobs.notebooks import environment
from runtime.contract import NOTEBOOK_PACKAGES


def test_the_client_has_all_that_its_project_file_names() -> None:
    project = tomllib.loads((Path(settings.BASE_DIR) / "client" / "pyproject.toml").read_text())["project"]
    named = {*project["dependencies"], *project["optional-dependencies"]["notebook"]}
    assert set(environment.CLIENT) == named


def test_each_package_is_required_once() -> None:
    names = [Requirement(line).name for line in environment.requirements()]
    assert len(names) == len(set(names))
    assert "jupyterlab" in names


def test_the_client_is_among_the_files() -> None:
    files = environment.client_files()
    assert f"{NOTEBOOK_PACKAGES}/regatta/__init__.py" in files
    assert all(path.startswith(NOTEBOOK_PACKAGES) for path in files)
