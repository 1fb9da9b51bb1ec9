"""The page of invariants is generated from the markers on the tests, and a stale or ambiguous page is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREE = {
    "quota/ledger.py": "",
    "jobs/elastic/policy.py": "",
    "jobs/elastic/__pycache__/policy.pyc": "",
    "jobs/moved/__pycache__/policy.pyc": "",
    "client/regatta/http.py": "",
}

Mark = Callable[..., None]


@pytest.fixture
def invariants(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import invariants

    return invariants


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Root with three packages, and folders for tests and documents."""
    for path, text in {**TREE, "docs/testing.md": "", "tests/__init__.py": ""}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.fixture
def mark(tree: Path) -> Mark:
    """Function that writes a test below ``tests`` with a marker for each text."""

    def write(path: str, *texts: str) -> None:
        file = tree / "tests" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        decorators = "".join(f"@pytest.mark.invariant({text!r})\n" for text in texts)
        file.write_text(f"import pytest\n\n{decorators}def test_it() -> None: ...\n")

    return write


def test_each_package_has_a_table_and_the_system_is_last(invariants, tree: Path, mark: Mark) -> None:  # type: ignore[no-untyped-def]
    mark("quota/test_b.py", "Hours count once.", "A | b holds.")
    mark("quota/test_a.py", "Hours count once.")
    mark("jobs/elastic/test_policy.py", "Jobs rest.")
    mark("end_to_end/test_all.py", "All works.")
    assert invariants.main([], tree) == 0
    page = (tree / "docs" / "invariants.md").read_text()
    assert page.startswith("# Invariants\n")
    assert page[page.index("## ") :] == (
        "## jobs/elastic\n\n| Invariant | Tests |\n|---|---|\n"
        "| Jobs rest. | `tests/jobs/elastic/test_policy.py::test_it` |\n\n"
        "## quota\n\n| Invariant | Tests |\n|---|---|\n"
        "| A \\| b holds. | `tests/quota/test_b.py::test_it` |\n"
        "| Hours count once. | `tests/quota/test_a.py::test_it`<br>`tests/quota/test_b.py::test_it` |\n\n"
        "## The whole system\n\n| Invariant | Tests |\n|---|---|\n"
        "| All works. | `tests/end_to_end/test_all.py::test_it` |\n"
    )


def test_methods_and_classes_are_named_as_pytest_names_them(invariants, tree: Path) -> None:  # type: ignore[no-untyped-def]
    (tree / "tests" / "test_c.py").write_text(
        "@pytest.mark.invariant('One.')\nclass TestC(Machine.TestCase):\n"
        "    @mark.invariant(\n        'Two '\n        'halves.'\n    )\n    async def test_m(self): ...\n"
    )
    assert [(each.text, each.name, each.line) for each in invariants.markers(tree)] == [
        ("One.", "TestC", 1),
        ("Two halves.", "TestC::test_m", 3),
    ]


@pytest.mark.parametrize(
    ("paths", "home"),
    [
        (["jobs/elastic/test_a.py"], "jobs/elastic"),
        (["jobs/elastic/test_a.py", "jobs/test_a.py"], "jobs"),
        (["jobs/elastic/test_a.py", "end_to_end/test_a.py"], "jobs/elastic"),
        (["jobs/moved/test_a.py"], "jobs"),
        (["client/test_a.py"], "client"),
        (["end_to_end/test_a.py", "faults/test_a.py"], "The whole system"),
    ],
)
def test_an_invariant_belongs_to_the_package_that_its_tests_share(  # type: ignore[no-untyped-def]
    invariants, tree: Path, mark: Mark, paths: list[str], home: str
) -> None:
    for path in paths:
        mark(path, "It holds.")
    found = list(invariants.markers(tree))
    assert list(invariants.problems(tree, found)) == []
    assert invariants.home(tree, found) == home


def test_a_current_page_passes_the_check_and_is_left_alone(invariants, tree: Path, mark: Mark) -> None:  # type: ignore[no-untyped-def]
    mark("quota/test_a.py", "Hours count once.")
    invariants.main([], tree)
    assert invariants.main(["--check"], tree) == 0


@pytest.mark.parametrize("change", ["test", "page", "nothing written"])
def test_a_stale_page_fails_the_check_with_the_command_to_run(  # type: ignore[no-untyped-def]
    invariants, tree: Path, mark: Mark, capsys: pytest.CaptureFixture[str], change: str
) -> None:
    mark("quota/test_a.py", "Hours count once.")
    page = tree / "docs" / "invariants.md"
    if change != "nothing written":
        invariants.main([], tree)
    if change == "test":
        mark("quota/test_a.py", "Hours count twice.")
    elif change == "page":
        page.write_text(page.read_text() + "More.\n")
    before = page.read_text() if page.exists() else None
    assert invariants.main(["--check"], tree) == 1
    assert capsys.readouterr().out == (
        "docs/invariants.md is out of date. Run: .venv/bin/python scripts/invariants.py\n"
    )
    assert (page.read_text() if page.exists() else None) == before


def test_one_text_in_two_packages_is_refused(  # type: ignore[no-untyped-def]
    invariants, tree: Path, mark: Mark, capsys: pytest.CaptureFixture[str]
) -> None:
    mark("quota/test_a.py", "It holds.")
    mark("jobs/elastic/test_a.py", "It holds.")
    assert invariants.main(["--check"], tree) == 1
    message = capsys.readouterr().out
    assert message.startswith("'It holds.' is on tests of jobs and quota: tests/jobs/elastic/test_a.py::test_it, ")
    assert not (tree / "docs" / "invariants.md").exists()


@pytest.mark.parametrize("other", ["Hours Count Once.", "Hours, count once.", "Hours  count once."])
def test_two_spellings_of_one_text_are_refused(  # type: ignore[no-untyped-def]
    invariants, tree: Path, mark: Mark, capsys: pytest.CaptureFixture[str], other: str
) -> None:
    mark("quota/test_a.py", "Hours count once.")
    mark("quota/test_b.py", other)
    assert invariants.main([], tree) == 1
    assert capsys.readouterr().out == (
        f"tests/quota/test_b.py:3: {other!r} differs only in spelling from 'Hours count once.' in "
        "tests/quota/test_a.py:3. Write both in the same way.\n"
    )


@pytest.mark.parametrize("text", ["no capital.", "No stop", "Long " + "word " * 24 + "end.", "", "Two\nlines."])
def test_a_text_that_is_not_a_short_statement_is_refused(  # type: ignore[no-untyped-def]
    invariants, tree: Path, mark: Mark, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    mark("quota/test_a.py", text)
    assert invariants.main([], tree) == 1
    assert capsys.readouterr().out.startswith("tests/quota/test_a.py:3: an invariant starts with a capital letter")


@pytest.mark.parametrize(
    "source",
    [
        "TEXT = 'A.'\n@pytest.mark.invariant(TEXT)\ndef test_a(): ...",
        "import pytest\n@pytest.mark.invariant(text='A.')\ndef test_a(): ...",
        "import pytest\n@pytest.mark.invariant('A.')\ndef helper(): ...",
        "import pytest\npytestmark = pytest.mark.invariant('A.')",
        "import pytest\n@pytest.mark.invariant\ndef test_a(): ...",
        "import pytest\nCASE = pytest.param(1, marks=pytest.mark.invariant('A.'))",
    ],
    ids=["variable", "keyword", "helper", "module", "no text", "parameter"],
)
def test_an_invalid_marker_is_refused_with_its_place(  # type: ignore[no-untyped-def]
    invariants, tree: Path, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    (tree / "tests" / "test_a.py").write_text(source)
    assert invariants.main([], tree) == 1
    assert capsys.readouterr().out.startswith("tests/test_a.py:2: the marker ")
