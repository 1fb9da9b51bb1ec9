"""Every timed test, and those with processes or on a cluster, is found by its target of the Makefile, which reads only
the files that name the marker."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest

ROOT = Path(__file__).resolve().parents[2]


def collected(path: Path, *markers: str) -> Any:
    marks = [SimpleNamespace(name=name) for name in markers]
    return SimpleNamespace(nodeid=path.name, path=path, iter_markers=lambda: marks, get_closest_marker=markers.count)


@pytest.mark.parametrize(
    ("target", "marker"), [("test-timed", "timed"), ("test-processes", "postgres"), ("test-kube", "kube")]
)
def test_a_test_in_a_file_that_does_not_name_its_marker_is_refused(tmp_path: Path, target: str, marker: str) -> None:
    path = tmp_path / "test_a.py"
    path.write_text(f"class TestThis(Contract):\n    '''It {marker}_out.'''\n")
    with pytest.raises(pytest.UsageError, match=rf"make {target} would not find the tests of .*test_a\.py"):
        conftest.pytest_collection_modifyitems([collected(path, marker)])


def test_a_file_that_names_the_marker_may_inherit_timed_tests(tmp_path: Path) -> None:
    path = tmp_path / "test_a.py"
    path.write_text("class TestThis(Contract):\n    '''One test is timed.'''\n")
    conftest.pytest_collection_modifyitems([collected(path, "timed")])


def test_other_files_need_not_name_the_marker(tmp_path: Path) -> None:
    path = tmp_path / "test_a.py"
    path.touch()
    conftest.pytest_collection_modifyitems([collected(path, "etcd")])


@pytest.mark.parametrize("target", ["test-processes", "test-kube"])
def test_the_makefile_searches_for_the_words_that_are_checked(target: str) -> None:
    word, _ = conftest._BY_WORD[target]
    searched = re.findall(r"grep -rlE --include='test_\*\.py' '(.*)' tests", (ROOT / "Makefile").read_text())
    assert word.pattern in searched
