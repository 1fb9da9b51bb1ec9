"""Mutation testing: apply one small bug at a time to a copy of the tree and report whether the package's tests fail.

``scripts/mutations/<package>.toml`` holds the mutations: ``tests`` (pytest's arguments) for the file, and for each
mutation ``id``, ``path``, ``old`` (a text that occurs once in the file, or once behind the first ``after``), ``new``
and, where they differ, ``tests``; ``schema`` where a migration runs the place. The tests of a file with ``postgres``
run on a private PostgreSQL. The test files that name the changed
module most often run first, and the first failure ends the run. A run stores each result in ``build/mutations.jsonl``
at once; a second run repeats only what has changed since. Two options run no test: ``--check`` reports the mutations
whose place is not in the code any more, ``--stored`` the results that are still valid.

    .venv/bin/python scripts/mutate.py --only quota-,rbac- --jobs 2
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "scripts" / "mutations"
RESULTS = ROOT / "build" / "mutations.jsonl"
SCRIPTS = ROOT / "scripts"
TEST_SECONDS = 60.0  # timeout of one test: one that hangs has failed
# Imported once, before the test processes are forked: importing these takes most of a short run.
_HEAVY = (
    *("pytest", "pytest_django.plugin", "xdist.plugin", "hypothesis.stateful", "hypothesis.extra.pytestplugin"),
    *("django.test", "django.test.client", "django.db.models", "django.forms", "django.template.loader"),
    *("numpy.testing", "httpx", "channels.db", "cryptography.x509", "grpc", "asyncio", "playwright.sync_api"),
)
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([name for name in _HEAVY if find_spec(name.partition(".")[0])])
KILLED, SURVIVED, ENDLESS, STALE, RED = "killed", "survived", "no end", "no longer applies", "fails without it"
UNJUDGED = "not judged"


@dataclass(frozen=True)
class Mutation:
    package: str
    id: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    after: str = ""
    # whether a migration runs the code: the database is then created again
    schema: bool = field(default=False, repr=False)
    postgres: bool = field(default=False, repr=False)  # whether its tests need PostgreSQL

    def applied(self, text: str) -> str | None:
        """Return the text with the bug, or None if the place is not found exactly once."""
        begin = text.find(self.after)
        if begin < 0 or text.count(self.old, begin) != 1:
            return None
        return text[:begin] + text[begin:].replace(self.old, self.new)


@dataclass(frozen=True)
class Result:
    verdict: str
    killer: str = ""  # the test that failed first


def read_table(folder: Path) -> list[Mutation]:
    """Return all mutations. Raises ValueError if two have the same id."""
    found = []
    for file in sorted(folder.glob("*.toml")):
        content = tomllib.loads(file.read_text())
        for row in content["mutation"]:
            tests = tuple(row.pop("tests", content["tests"]))
            given = {"postgres": content.get("postgres", False), **row, "id": f"{file.stem}-{row['id']}"}
            found.append(Mutation(package=file.stem, tests=tests, **given))
    twice = [name for name, count in Counter(one.id for one in found).items() if count > 1]
    if twice:
        raise ValueError(f"Two mutations have the id {twice[0]}.")
    return found


def faults(mutations: Sequence[Mutation], root: Path) -> Iterator[str]:
    """Yield problems of the table: a missing place or test, or a mutation that changes nothing."""
    for one in mutations:
        file = root / one.path
        text = file.read_text() if file.is_file() else ""
        if (mutated := one.applied(text)) is None:
            yield f"{one.id}: its place is not in {one.path} exactly once."
        elif mutated == text:
            yield f"{one.id}: it changes nothing in {one.path}."
        for name in one.tests:
            if not _exists(root, name):
                yield f"{one.id}: there is no {name}."


def _exists(root: Path, name: str) -> bool:
    """Return whether the file, folder, or test in a file exists."""
    place, _, test = name.partition("::")
    file = root / place
    return file.exists() and (not test or re.search(rf"def {re.escape(test)}\(", file.read_text()) is not None)


def nearest_first(mutation: Mutation, root: Path) -> tuple[str, ...]:
    """Return the mutation's test files; those that name the changed module most often come first."""
    path = Path(mutation.path)
    stem = path.parent.name if path.stem == "__init__" else path.stem

    def distance(name: str) -> tuple[int, int]:
        file = root / name.partition("::")[0]
        text = file.read_text()
        near = file.stem.removeprefix("test_").rstrip("s") in (stem, stem.rstrip("s"))
        return -near, -len(re.findall(rf"\b{stem}\b", text))

    files = list[str]()
    for name in mutation.tests:
        place = root / name
        found = sorted(place.rglob("test_*.py")) if place.is_dir() else []
        files += [str(file.relative_to(root)) for file in found] or [name]
    return tuple(sorted(dict.fromkeys(files), key=distance))


def key_of(mutation: Mutation, root: Path, killer: str = "") -> str:
    """Return a key that changes with the mutation, the changed file and its test files.

    For a killed mutation, the text of the test that killed it counts instead of the test files.
    """
    digest = hashlib.sha256(repr(replace(mutation, tests=())).encode())
    names = [mutation.path, *(mutation.tests if text_of(killer, root) is None else ())]
    for place in (root / name.partition("::")[0] for name in names):
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.read_bytes() if file.is_file() else b"")
    return hashlib.sha256(digest.digest() + (text_of(killer, root) or "").encode()).hexdigest()


def file_of(killer: str) -> str | None:
    """Return the file of a failed test, from pytest's summary line."""
    match = re.match(r"(?:FAILED|ERROR) ([^ :]+\.py)", killer)
    return match[1] if match else None


def text_of(killer: str, root: Path) -> str | None:
    """Return the text of the failed test with its decorators. None if pytest named none, or it no longer exists."""
    match = re.match(r"FAILED ([^ :]+\.py)::(?:\w+::)*(\w+)", killer)
    if match is None or not (root / match[1]).is_file():
        return None
    text = (root / match[1]).read_text()
    functions = [node for node in ast.walk(ast.parse(text)) if getattr(node, "name", None) == match[2]]
    lines = text.splitlines()
    found = [
        lines[min([one.lineno, *(mark.lineno for mark in one.decorator_list)]) - 1 : one.end_lineno]
        for one in functions
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return "\n".join(itertools.chain.from_iterable(found)) if found else None


class Tree:
    """Copy of the working tree that one thread mutates, with its own data directory and database."""

    def __init__(self, source: Path, folder: Path, seconds: float) -> None:
        self.root, self._data, self._seconds = folder / "tree", folder / "data", seconds
        self._data.mkdir(parents=True)
        self._old_schema = False  # whether the stored embedded database was created by other code
        self._postgres: Any = None
        # Compiled files are matched by time, so every change of a file gets a different time.
        self._times = itertools.count(1_000_000_000)
        names = _git(source, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        for name in filter(None, names):
            if (source / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, self.root / name)

    def judge(self, mutation: Mutation) -> Result:
        file = self.root / mutation.path
        text = file.read_text() if file.is_file() else ""
        mutated = mutation.applied(text)
        if mutated is None or mutated == text:
            return Result(STALE)
        self._write(file, mutated)
        try:
            self._old_schema |= mutation.schema
            return self.run(nearest_first(mutation, self.root), postgres=mutation.postgres)
        finally:
            self._write(file, text)
            self._old_schema |= mutation.schema

    def run(self, tests: Sequence[str], *, postgres: bool = False) -> Result:
        """Run the tests. The mutation survived if all pass."""
        database = self._postgres_url() if postgres else ""
        options = ["-x", "-q", "-p", "no:cacheprovider", "--reuse-db", "--tb=no", "-rfE"]
        if self._old_schema and not postgres:
            options.append("--create-db")
            self._old_schema = False
        # A test that hangs ends its process: a hanging property would be repeated with ever smaller examples.
        options += [f"--timeout={TEST_SECONDS:g}", "--timeout-method=thread"]
        output = self._data / "output"
        arguments = (self.root, self._data, database, output, [*options, *tests])
        process = _FORKS.Process(target=_run_pytest, args=arguments)
        process.start()
        process.join(self._seconds)
        in_time = process.exitcode is not None
        # Processes that the tests started end with them.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        if not in_time:
            return Result(ENDLESS)
        if process.exitcode == 0:
            return Result(SURVIVED)
        lines = output.read_text().splitlines()
        failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
        return Result(KILLED, failed[0] if failed else f"pytest ended with {process.exitcode}: {(lines or [''])[-1]}")

    def close(self) -> None:
        if self._postgres is not None:
            self._postgres.stop()
            self._postgres = None

    def _postgres_url(self) -> str:
        """Return the URL of a server that runs as long as the tree, so that its test database is created once."""
        if self._postgres is None:
            self._postgres = _postgres_server("PostgresServer")
            self._postgres.start()
        return str(self._postgres.url)

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text)
        moment = next(self._times)
        os.utime(file, (moment, moment))


def postgres_programs() -> Path | None:
    """Return the directory of PostgreSQL's programs, or None if it is not installed."""
    found: Path | None = _postgres_server("programs")
    return found


def _postgres_server(name: str) -> Any:
    """Call a function of tests/servers/postgres_server.py by name.

    It is not imported: processes that run tests of a copy would inherit the package ``tests`` of this tree.
    """
    return runpy.run_path(str(ROOT / "tests" / "servers" / "postgres_server.py"))[name]()


def _run_pytest(root: Path, data: Path, database: str, output: Path, arguments: Sequence[str]) -> None:
    """Run pytest in a separate process and session. ``database`` is a URL; empty means the embedded database."""
    os.setsid()
    os.chdir(root)
    os.environ.update(REGATTA_DATA_DIR=str(data), HYPOTHESIS_PROFILE="ci")
    if database:
        os.environ["REGATTA_DATABASE_URL"] = database
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    sys.path[:] = [str(root), *(place for place in sys.path if Path(place) != SCRIPTS)]
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)

    import pytest

    sys.exit(int(pytest.main(list(arguments))))


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


class Record:
    """Stored results, one per line, so that several runs can add to the file at once.

    A survivor stays valid until its mutation, the file or one of its tests changes; a killed one until the mutation,
    the file or the test that killed it changes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, Result] = {}
        self._killers: dict[str, list[Result]] = {}
        for row in map(json.loads, path.read_text().splitlines() if path.exists() else []):
            self._take(row["key"], row["id"], Result(row["verdict"], row["killer"]))

    def find(self, mutation: Mutation, root: Path) -> Result | None:
        for result in self._killers.get(mutation.id, []):
            if key_of(mutation, root, result.killer) in self._found:
                return result
        return self._found.get(key_of(mutation, root))

    def add(self, mutation: Mutation, root: Path, result: Result) -> None:
        key = key_of(mutation, root, result.killer)
        self._take(key, mutation.id, result)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        row = {"key": key, "id": mutation.id, "verdict": result.verdict, "killer": result.killer}
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def _take(self, key: str, name: str, result: Result) -> None:
        self._found[key] = result
        if result.verdict == KILLED:
            self._killers.setdefault(name, []).append(result)


def _deciding(mutation: Mutation, result: Result) -> Sequence[str]:
    """Return the tests that must pass without the mutation."""
    file = file_of(result.killer)
    own = [name for name in mutation.tests if name.startswith(f"{file}::")]
    return own or ([file] if file else mutation.tests)


class Judges:
    """Judges mutations on several trees at once. A test file that fails without the mutation is not used."""

    def __init__(self, root: Path, folder: Path, record: Record, *, jobs: int, seconds: float) -> None:
        self._root, self._record, self._jobs = root, record, jobs
        self._free = [Tree(root, folder / str(number), seconds) for number in range(jobs)]
        self._lock = threading.Lock()
        self._green: dict[tuple[str, ...], bool] = {}
        self._trees = list(self._free)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for tree in self._trees:
            tree.close()

    def all(self, mutations: Sequence[Mutation]) -> Iterator[tuple[Mutation, Result]]:
        with ThreadPoolExecutor(self._jobs) as pool:
            yield from zip(mutations, pool.map(self._one, mutations), strict=True)

    def _one(self, mutation: Mutation) -> Result:
        tree = self._free.pop()
        try:
            known = self._record.find(mutation, tree.root)
            if known is not None:
                return known
            if mutation.postgres and postgres_programs() is None:
                return Result(UNJUDGED, "there is no PostgreSQL (Debian: apt-get install postgresql)")
            result = tree.judge(mutation)
            deciding = tuple(_deciding(mutation, result))
            if result.verdict == KILLED and not self._is_green(tree, deciding, postgres=mutation.postgres):
                return Result(RED, result.killer)
            self._record.add(mutation, tree.root, result)
            return result
        finally:
            self._free.append(tree)

    def _is_green(self, tree: Tree, tests: tuple[str, ...], *, postgres: bool) -> bool:
        with self._lock:
            known = self._green.get(tests)
        if known is None:
            known = tree.run(tests, postgres=postgres).verdict == SURVIVED
            with self._lock:
                self._green[tests] = known
        return known


def summary(results: Sequence[tuple[Mutation, Result]]) -> Iterator[str]:
    """Yield a line for each package, and one for all."""
    packages: dict[str, Counter[str]] = {}
    for mutation, result in results:
        for name in (mutation.package, "all"):
            packages.setdefault(name, Counter())[result.verdict] += 1
    everything = packages.pop("all", Counter())
    for name, counts in [*packages.items(), ("all", everything)]:
        yield f"{name:<16}{_counted(counts)}"


def _counted(counts: Mapping[str, int]) -> str:
    decided = counts.get(KILLED, 0) + counts.get(SURVIVED, 0)
    share = f"{counts.get(KILLED, 0)} of {decided} killed" + (f", {counts[KILLED] / decided:.0%}" if decided else "")
    undecided = (f"{counts[verdict]} {verdict}" for verdict in (ENDLESS, STALE, RED, UNJUDGED) if counts.get(verdict))
    return "; ".join([share, *undecided])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="ids that begin with one of these, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of one run of tests")
    parser.add_argument("--check", action="store_true", help="run nothing, report mutations that no longer apply")
    parser.add_argument("--stored", action="store_true", help="run nothing, report the stored results")
    given = parser.parse_args()
    chosen = [one for one in read_table(TABLE) if one.id.startswith(tuple(given.only.split(",")))]
    if wrong := list(faults(chosen, ROOT)):
        print(*wrong, sep="\n", file=sys.stderr)
        return 1
    if given.check:
        print(f"All {len(chosen)} mutations apply.")
        return 0
    record, results = Record(RESULTS), list[tuple[Mutation, Result]]()
    if given.stored:
        results = [(one, record.find(one, ROOT) or Result(UNJUDGED)) for one in chosen]
        print(*(f"{result.verdict:<18} {one.id}" for one, result in results if result.verdict != KILLED), sep="\n")
        print(*summary(results), sep="\n")
        return 0
    # so that servers are stopped and copies removed
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with (
        tempfile.TemporaryDirectory(prefix="mutations-") as folder,
        Judges(ROOT, Path(folder), record, jobs=given.jobs, seconds=given.seconds) as judges,
    ):
        for mutation, result in judges.all(chosen):
            print(f"{result.verdict:<18} {mutation.id:<40} {result.killer}", flush=True)
            results.append((mutation, result))
    print(*summary(results), sep="\n")
    return 0 if all(result.verdict == KILLED for _, result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
