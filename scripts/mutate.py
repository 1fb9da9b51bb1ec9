"""Mutation testing: apply one small bug at a time to a copy of the tree and report whether the package's tests fail.

``scripts/mutations/<package>.toml`` holds the mutations: ``tests`` (pytest's arguments) for the file, and for each
mutation ``id``, ``path``, ``old`` (a text that occurs once in the file, or once behind the first ``after``), ``new``
and, where they differ, ``tests``. A run stores its results in ``build/mutations.jsonl``; a second run repeats only what
has changed since.

    .venv/bin/python scripts/mutate.py --only jobs- --jobs 2
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import multiprocessing
import os
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
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "scripts" / "mutations"
RESULTS = ROOT / "build" / "mutations.jsonl"
SCRIPTS = ROOT / "scripts"
TEST_SECONDS = 60.0  # of one test: one that hangs has failed
# Imported once, before the processes that run the tests are forked: most of a short run is importing these.
_HEAVY = (
    *("pytest", "pytest_django.plugin", "xdist.plugin", "hypothesis.stateful", "hypothesis.extra.pytestplugin"),
    *("django.test", "django.test.client", "django.db.models", "django.forms", "django.template.loader"),
    *("numpy.testing", "httpx", "channels.db", "cryptography.x509", "grpc", "asyncio", "playwright.sync_api"),
)
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([name for name in _HEAVY if find_spec(name.partition(".")[0])])
KILLED, SURVIVED, ENDLESS, STALE, RED = "killed", "survived", "no end", "no longer applies", "fails without it"


@dataclass(frozen=True)
class Mutation:
    package: str
    id: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    after: str = ""

    def applied(self, text: str) -> str | None:
        """The text with the bug. None where its place is not there exactly once."""
        begin = text.find(self.after)
        if begin < 0 or text.count(self.old, begin) != 1:
            return None
        return text[:begin] + text[begin:].replace(self.old, self.new)


@dataclass(frozen=True)
class Result:
    verdict: str
    killer: str = ""  # the test that failed first


def read_table(folder: Path) -> list[Mutation]:
    """All mutations. Raises ValueError where two have the same id."""
    found = []
    for file in sorted(folder.glob("*.toml")):
        content = tomllib.loads(file.read_text())
        for row in content["mutation"]:
            tests = tuple(row.pop("tests", content["tests"]))
            found.append(Mutation(package=file.stem, tests=tests, **{**row, "id": f"{file.stem}-{row['id']}"}))
    twice = [name for name, count in Counter(one.id for one in found).items() if count > 1]
    if twice:
        raise ValueError(f"Two mutations have the id {twice[0]}.")
    return found


def key_of(mutation: Mutation, root: Path) -> str:
    """Changes with the mutation, the file that it changes and the files of its tests."""
    digest = hashlib.sha256(repr(mutation).encode())
    for name in (mutation.path, *mutation.tests):
        place = root / name.split("::")[0]
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()


class Tree:
    """A copy of the working tree that one thread mutates, with a data directory and a database of its own."""

    def __init__(self, source: Path, folder: Path, seconds: float) -> None:
        self._root, self._data, self._seconds = folder / "tree", folder / "data", seconds
        self._data.mkdir(parents=True)
        # Compiled files are matched by time: each change of a file has a time of its own.
        self._times = itertools.count(1_000_000_000)
        names = _git(source, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
        for name in filter(None, names):
            if (source / name).is_file():
                (self._root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, self._root / name)

    def judge(self, mutation: Mutation) -> Result:
        file = self._root / mutation.path
        text = file.read_text() if file.is_file() else ""
        mutated = mutation.applied(text)
        if mutated is None or mutated == text:
            return Result(STALE)
        self._write(file, mutated)
        try:
            return self.run(mutation.tests)
        finally:
            self._write(file, text)

    def run(self, tests: Sequence[str]) -> Result:
        """Survived where all tests pass."""
        options = ["-x", "-q", "-p", "no:cacheprovider", "--reuse-db", "--tb=no", "-rfE"]
        # A test that hangs ends its process: a property that hangs would be tried with ever smaller examples.
        options += [f"--timeout={TEST_SECONDS:g}", "--timeout-method=thread"]
        output = self._data / "output"
        process = _FORKS.Process(target=_run_pytest, args=(self._root, self._data, output, [*options, *tests]))
        process.start()
        process.join(self._seconds)
        in_time = process.exitcode is not None
        # What the tests have started ends with them.
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

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text)
        moment = next(self._times)
        os.utime(file, (moment, moment))


def _run_pytest(root: Path, data: Path, output: Path, arguments: Sequence[str]) -> None:
    """In a process of its own, in a session of its own."""
    os.setsid()
    os.chdir(root)
    os.environ.update(REGATTA_DATA_DIR=str(data), HYPOTHESIS_PROFILE="ci")
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
    """The stored results, by key; a line each, so that several runs may add to it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._found = {row["key"]: Result(row["verdict"], row["killer"]) for row in map(json.loads, lines)}

    def find(self, key: str) -> Result | None:
        return self._found.get(key)

    def add(self, key: str, name: str, result: Result) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps({"key": key, "id": name, "verdict": result.verdict, "killer": result.killer}) + "\n")


class Judges:
    """Judges mutations on several trees at once. Tests that fail without a mutation decide nothing."""

    def __init__(self, root: Path, folder: Path, record: Record, *, jobs: int, seconds: float) -> None:
        self._root, self._record, self._jobs = root, record, jobs
        self._free = [Tree(root, folder / str(number), seconds) for number in range(jobs)]
        self._lock = threading.Lock()
        self._green: dict[tuple[str, ...], Result] = {}
        self._looking: dict[tuple[str, ...], threading.Lock] = {}

    def all(self, mutations: Sequence[Mutation]) -> Iterator[tuple[Mutation, Result]]:
        with ThreadPoolExecutor(self._jobs) as pool:
            yield from zip(mutations, pool.map(self._one, mutations), strict=True)

    def _one(self, mutation: Mutation) -> Result:
        key = key_of(mutation, self._root)
        known = self._record.find(key)
        if known is not None:
            return known
        tree = self._free.pop()
        try:
            result = tree.judge(mutation) if self._is_green(tree, mutation.tests) else Result(RED)
        finally:
            self._free.append(tree)
        if result.verdict != RED:
            self._record.add(key, mutation.id, result)
        return result

    def _is_green(self, tree: Tree, tests: tuple[str, ...]) -> bool:
        with self._lock:
            looking = self._looking.setdefault(tests, threading.Lock())
        with looking:
            if tests not in self._green:
                self._green[tests] = tree.run(tests)
            return self._green[tests].verdict == SURVIVED


def summary(results: Sequence[tuple[Mutation, Result]]) -> Iterator[str]:
    """A line for each package, and one for all."""
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
    undecided = (f"{counts[verdict]} {verdict}" for verdict in (ENDLESS, STALE, RED) if counts.get(verdict))
    return "; ".join([share, *undecided])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="ids that begin with one of these, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of one run of tests")
    given = parser.parse_args()
    chosen = [one for one in read_table(TABLE) if one.id.startswith(tuple(given.only.split(",")))]
    results = []
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        judges = Judges(ROOT, Path(folder), Record(RESULTS), jobs=given.jobs, seconds=given.seconds)
        for mutation, result in judges.all(chosen):
            print(f"{result.verdict:<18} {mutation.id:<40} {result.killer}", flush=True)
            results.append((mutation, result))
    print(*summary(results), sep="\n")
    return 0 if all(result.verdict == KILLED for _, result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
