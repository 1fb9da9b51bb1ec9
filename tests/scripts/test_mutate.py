"""Mutation testing on a tree of three lines."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = "def largest(a, b):\n    return a if a > b else b\n"
TESTS = (
    "from product import largest\n\ndef test_largest():\n    assert largest(1, 2) == 2\n    assert largest(2, 2) == 2\n"
)
TABLE = """
tests = ["test_product.py"]

[[mutation]]
id = "smallest"
path = "product.py"
old = "a > b"
new = "a < b"

[[mutation]]
id = "of-equal-ones-the-first"
path = "product.py"
old = "a > b"
new = "a >= b"

[[mutation]]
id = "gone"
path = "product.py"
old = "a == b"
new = "a != b"
"""


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import mutate

    return mutate


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "product.py").write_text(PRODUCT)
    (tmp_path / "test_product.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "product.toml").write_text(TABLE)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def verdicts(mutate, tree: Path) -> dict[str, str]:  # type: ignore[no-untyped-def]
    record = mutate.Record(tree / "results")
    with mutate.Judges(tree, tree / "copies", record, jobs=1, seconds=60.0) as judges:
        return {one.id: result.verdict for one, result in judges.all(mutate.read_table(tree / "table"))}


@pytest.mark.processes
def test_each_mutation_is_judged_on_a_copy_and_stored_for_the_next_run(mutate, tree: Path) -> None:  # type: ignore[no-untyped-def]
    expected = {
        "product-smallest": "killed",
        "product-of-equal-ones-the-first": "survived",
        "product-gone": "no longer applies",
    }
    assert verdicts(mutate, tree) == expected
    assert (tree / "product.py").read_text() == PRODUCT
    assert len((tree / "results").read_text().splitlines()) == len(expected)


@pytest.mark.processes
def test_tests_that_fail_without_a_mutation_kill_none(mutate, tree: Path) -> None:  # type: ignore[no-untyped-def]
    (tree / "test_product.py").write_text("def test_nothing():\n    assert False\n")
    (tree / "table" / "product.toml").write_text(TABLE[: TABLE.rindex("[[mutation]]")])
    assert set(verdicts(mutate, tree).values()) == {"fails without it"}


@pytest.mark.postgres
@pytest.mark.processes
def test_the_tests_of_a_table_with_postgres_run_on_postgresql(mutate, tree: Path) -> None:  # type: ignore[no-untyped-def]
    (tree / "test_product.py").write_text(
        "import os\nfrom product import largest\n\ndef test_largest():\n"
        "    assert os.environ['REGATTA_DATABASE_URL'].startswith('postgresql://')\n    assert largest(1, 2) == 2\n"
    )
    (tree / "table" / "product.toml").write_text("postgres = true\n" + TABLE[: TABLE.rindex("[[mutation]]")])
    expected = {"product-smallest": "killed", "product-of-equal-ones-the-first": "survived"}
    assert verdicts(mutate, tree) == expected


@pytest.mark.postgres
def test_the_postgresql_of_a_tree_ends_with_it(mutate, tree: Path) -> None:  # type: ignore[no-untyped-def]
    copy = mutate.Tree(tree, tree / "copy", 60.0)
    url = copy._postgres_url()
    copy.close()
    assert not Path(unquote(urlsplit(url).netloc.partition("@")[2])).exists()


def test_without_postgresql_its_mutations_are_not_judged(mutate, tree: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tree / "table" / "product.toml").write_text("postgres = true\n" + TABLE)
    monkeypatch.setattr(mutate, "postgres_programs", lambda: None)
    assert set(verdicts(mutate, tree).values()) == {"not judged"}
    assert not (tree / "results").exists()


def test_a_mutation_is_one_place(mutate) -> None:  # type: ignore[no-untyped-def]
    twice = mutate.Mutation("p", "p-1", "f.py", "x", "y", ())
    assert twice.applied("x x") is None
    assert mutate.Mutation("p", "p-1", "f.py", "x", "y", (), after="b").applied("x b x") == "x b y"


def test_an_id_is_used_once(mutate, tree: Path) -> None:  # type: ignore[no-untyped-def]
    (tree / "table" / "product.toml").write_text(TABLE.replace("gone", "smallest"))
    with pytest.raises(ValueError, match="product-smallest"):
        mutate.read_table(tree / "table")


def test_every_mutation_of_the_table_applies_to_the_code(mutate) -> None:  # type: ignore[no-untyped-def]
    assert list(mutate.faults(mutate.read_table(mutate.TABLE), ROOT)) == []


def test_a_mutation_with_a_missing_place_or_test_is_a_fault(mutate, tree: Path) -> None:  # type: ignore[no-untyped-def]
    (tree / "table" / "product.toml").write_text(TABLE.replace('"test_product.py"', '"test_gone.py"'))
    found = list(mutate.faults(mutate.read_table(tree / "table"), tree))
    assert "product-gone: its place is not in product.py exactly once." in found
    assert "product-smallest: there is no test_gone.py." in found


def test_a_mutation_whose_test_is_not_in_its_file_is_a_fault(mutate, tree: Path) -> None:  # type: ignore[no-untyped-def]
    tests = ("test_product.py::test_largest", "test_product.py::test_larg")
    one = mutate.Mutation("product", "product-one", "product.py", "a > b", "a < b", tests)
    assert list(mutate.faults([one], tree)) == ["product-one: there is no test_product.py::test_larg."]


def test_a_mutation_that_changes_nothing_is_a_fault(mutate, tree: Path) -> None:  # type: ignore[no-untyped-def]
    same = mutate.Mutation("product", "product-same", "product.py", "a > b", "a > b", ())
    assert list(mutate.faults([same], tree)) == ["product-same: it changes nothing in product.py."]


def test_the_tests_that_name_the_module_most_run_first(mutate, tree: Path) -> None:  # type: ignore[no-untyped-def]
    (tree / "tests").mkdir()
    for name, text in (("a", ""), ("b", "product"), ("c", "product, product"), ("product", "")):
        (tree / "tests" / f"test_{name}.py").write_text(text)
    one = mutate.Mutation("product", "product-1", "product.py", "x", "y", ("tests", "tests/test_c.py"))
    order = [Path(name).stem for name in mutate.nearest_first(one, tree)]
    assert order == ["test_product", "test_c", "test_b", "test_a"]


def test_a_survivor_is_stored_until_code_or_tests_change(mutate, tree: Path) -> None:  # type: ignore[no-untyped-def]
    [first, *_] = mutate.read_table(tree / "table")
    mutate.Record(tree / "results").add(first, tree, mutate.Result("survived"))
    again = mutate.Record(tree / "results")
    assert again.find(first, tree) == mutate.Result("survived")
    (tree / "test_product.py").write_text(TESTS + "\n")
    assert again.find(first, tree) is None


def test_a_killed_mutation_is_stored_until_the_code_or_its_killer_changes(mutate, tree: Path) -> None:  # type: ignore[no-untyped-def]
    [first, *_] = mutate.read_table(tree / "table")
    killed = mutate.Result("killed", "FAILED test_product.py::test_largest - assert 1 == 2")
    mutate.Record(tree / "results").add(first, tree, killed)
    again = mutate.Record(tree / "results")
    (tree / "test_product.py").write_text(TESTS + "\n\ndef test_another():\n    pass\n")
    assert again.find(first, tree) == killed
    (tree / "test_product.py").write_text(TESTS.replace("(2, 2) == 2", "(3, 2) == 3"))
    assert again.find(first, tree) is None
    (tree / "test_product.py").write_text(TESTS)
    (tree / "product.py").write_text(PRODUCT + "\n")
    assert again.find(first, tree) is None


def test_stored_results_are_reported_without_a_run(mutate, tree: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    (tree / "table" / "product.toml").write_text(TABLE[: TABLE.rindex("[[mutation]]")])
    for name, place in (("ROOT", tree), ("TABLE", tree / "table"), ("RESULTS", tree / "results")):
        monkeypatch.setattr(mutate, name, place)
    [first, *_] = mutate.read_table(tree / "table")
    mutate.Record(tree / "results").add(first, tree, mutate.Result("survived"))
    monkeypatch.setattr("sys.argv", ["mutate.py", "--stored"])
    assert mutate.main() == 0
    assert capsys.readouterr().out.splitlines()[-1].split(maxsplit=1) == ["all", "0 of 1 killed, 0%; 1 not judged"]


def test_the_summary_counts_what_was_decided(mutate) -> None:  # type: ignore[no-untyped-def]
    one = mutate.Mutation("quota", "quota-1", "f.py", "x", "y", ())
    results = [(one, mutate.Result(verdict)) for verdict in ("killed", "killed", "survived", "no end")]
    assert [line.split(maxsplit=1) for line in mutate.summary(results)] == [
        ["quota", "2 of 3 killed, 67%; 1 no end"],
        ["all", "2 of 3 killed, 67%; 1 no end"],
    ]
