"""The tests near a change are those that can notice it."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import grimp
import pytest

from scripts import test_near
from scripts.test_near import ALL, Suite, affected, changed, imported_names, read_tests

FILES = {
    "tests/conftest.py": "import rbac.models\nfrom tests import personas",
    "tests/personas.py": "",
    "tests/waiting.py": "import time",
    "tests/quota/test_ledger.py": "from quota import ledger\nfrom tests.waiting import until",
    "tests/rbac/test_roles.py": "from rbac import roles",
    "tests/jobs/conftest.py": "import runtime.contract",
    "tests/jobs/test_launch.py": "",
    "tests/jobs/web/test_pages.py": "",
    "tests/client/test_client.py": "",
    "tests/faults/test_kills.py": "from tests.faults import cluster",
    "tests/faults/cluster.py": "from runtime.agent import supervisor",
    "tests/portal/test_database.py": "",
    "tests/docs/test_links.py": "",
    "tests/scripts/test_mutate.py": "",
}


@pytest.fixture
def tests(tmp_path: Path) -> Suite:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_tests(tmp_path)


@pytest.fixture
def graph() -> grimp.ImportGraph:
    """``jobs.web.pages`` imports ``jobs.launch``, which imports ``quota.ledger``."""
    graph = grimp.ImportGraph()
    for name in ("jobs", "jobs.web", "jobs.web.pages", "jobs.launch", "quota", "quota.ledger", "rbac", "rbac.roles"):
        graph.add_module(name)
    for name in ("runtime", "runtime.agent", "runtime.agent.supervisor", "regatta", "regatta.client"):
        graph.add_module(name)
    graph.add_import(importer="jobs.launch", imported="quota.ledger")
    graph.add_import(importer="jobs.web.pages", imported="jobs.launch")
    return graph


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("jobs/web/pages.py", ["tests/jobs/web/test_pages.py"]),
        ("jobs/launch.py", ["tests/jobs/test_launch.py", "tests/jobs/web/test_pages.py"]),
        (
            "quota/ledger.py",
            ["tests/jobs/test_launch.py", "tests/jobs/web/test_pages.py", "tests/quota/test_ledger.py"],
        ),
        ("rbac/roles.py", ["tests/rbac/test_roles.py"]),
        ("client/regatta/client.py", ["tests/client/test_client.py"]),
        ("jobs/deleted.py", ["tests/jobs/test_launch.py"]),
    ],
)
def test_a_changed_module_affects_the_tests_of_its_package_and_of_all_that_import_it(
    path: str, expected: list[str], tests: Suite, graph: grimp.ImportGraph
) -> None:
    assert affected([PurePosixPath(path)], graph, tests) == expected


def test_tests_that_mirror_no_package_are_affected_through_what_they_import(
    tests: Suite, graph: grimp.ImportGraph
) -> None:
    assert affected([PurePosixPath("runtime/agent/supervisor.py")], graph, tests) == ["tests/faults/test_kills.py"]


def test_a_changed_module_that_a_conftest_imports_affects_the_tests_below_it(
    tests: Suite, graph: grimp.ImportGraph
) -> None:
    expected = ["tests/jobs/test_launch.py", "tests/jobs/web/test_pages.py"]
    assert affected([PurePosixPath("runtime/contract.py")], graph, tests) == expected


def test_what_the_conftest_of_all_tests_imports_counts_only_if_it_is_a_module_of_the_tests(
    tests: Suite, graph: grimp.ImportGraph
) -> None:
    assert affected([PurePosixPath("rbac/models.py")], graph, tests) == ["tests/rbac/test_roles.py"]
    assert affected([PurePosixPath("tests/personas.py")], graph, tests) == list(map(str, tests.files))


@pytest.mark.parametrize("path", ["jobs/templates/jobs/job.html", "jobs/migrations/0001_initial.py"])
def test_a_template_or_migration_affects_all_tests_of_its_package_and_of_the_portal(
    path: str, tests: Suite, graph: grimp.ImportGraph
) -> None:
    expected = ["tests/jobs/test_launch.py", "tests/jobs/web/test_pages.py", "tests/portal/test_database.py"]
    assert affected([PurePosixPath(path)], graph, tests) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/rbac/test_roles.py", ["tests/rbac/test_roles.py"]),
        ("tests/waiting.py", ["tests/quota/test_ledger.py"]),
        ("tests/jobs/conftest.py", ["tests/jobs/test_launch.py", "tests/jobs/web/test_pages.py"]),
        ("tests/jobs/web/deleted.json", ["tests/jobs/web/test_pages.py"]),
        ("tests/rbac/test_deleted.py", []),
        ("docs/testing.md", ["tests/docs/test_links.py"]),
        ("scripts/mutations/quota.toml", ["tests/scripts/test_mutate.py"]),
    ],
)
def test_a_changed_file_outside_the_packages_affects_the_tests_that_read_it(
    path: str, expected: list[str], tests: Suite, graph: grimp.ImportGraph
) -> None:
    assert affected([PurePosixPath(path)], graph, tests) == expected


@pytest.mark.parametrize("path", ["portal/settings.py", "portal/templates/base.html", "requirements.txt", "Makefile"])
def test_a_change_that_may_reach_everything_affects_all_tests(
    path: str, tests: Suite, graph: grimp.ImportGraph
) -> None:
    assert affected([PurePosixPath("rbac/roles.py"), PurePosixPath(path)], graph, tests) == [ALL]


def test_a_changed_conftest_of_all_tests_affects_all(tests: Suite, graph: grimp.ImportGraph) -> None:
    assert affected([PurePosixPath("tests/conftest.py")], graph, tests) == list(map(str, tests.files))


def test_each_way_to_import_is_read() -> None:
    source = "import a.b\nfrom c import d\ndef f():\n    from e.f import g\nfrom . import h\n"
    assert set(imported_names(source)) == {"a.b", "c", "c.d", "e.f", "e.f.g"}


def test_the_change_is_what_differs_from_where_the_branch_began(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name)
        git("add", "--all")
        git("commit", "-m", name)

    git("init", "--initial-branch", "main")
    (tmp_path / "deleted.py").touch()
    commit("before.py")
    git("switch", "--create", "branch")
    commit("committed.py")
    git("switch", "main")
    commit("on_main.py")
    git("switch", "branch")
    (tmp_path / "before.py").write_text("changed")
    (tmp_path / "untracked.py").touch()
    (tmp_path / "deleted.py").unlink()
    names = ("before.py", "committed.py", "deleted.py", "untracked.py")
    assert changed(tmp_path, "main") == [PurePosixPath(name) for name in names]


def test_all_packages_of_the_project_are_known() -> None:
    found = {path.parent.name for path in (*test_near.ROOT.glob("*/__init__.py"), test_near.ROOT / "client/regatta/x")}
    assert found - {"tests"} == set(test_near.PACKAGES)
