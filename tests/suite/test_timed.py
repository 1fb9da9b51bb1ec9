"""Every timed test is found by ``make test-timed``, which reads only the files that name the marker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest


def collected(path: Path, *markers: str) -> Any:
    return SimpleNamespace(nodeid=path.name, path=path, get_closest_marker=lambda name: name in markers)


def test_a_timed_test_in_a_file_that_does_not_name_the_marker_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "test_a.py"
    path.write_text("class TestThis(Contract):\n    '''It timed_out.'''\n")
    with pytest.raises(pytest.UsageError, match=r"would not find the timed tests of .*test_a\.py"):
        conftest.pytest_collection_modifyitems([collected(path, "timed")])


def test_a_file_that_names_the_marker_may_inherit_timed_tests(tmp_path: Path) -> None:
    path = tmp_path / "test_a.py"
    path.write_text("class TestThis(Contract):\n    '''One test is timed.'''\n")
    conftest.pytest_collection_modifyitems([collected(path, "timed")])


def test_other_files_need_not_name_the_marker(tmp_path: Path) -> None:
    path = tmp_path / "test_a.py"
    path.touch()
    conftest.pytest_collection_modifyitems([collected(path, "processes")])
