"""Syntax check of submitted Python files. The files are never run.

The parser runs in a separate interpreter with a limit of time and of memory: a text that is made to exhaust or crash a
parser ends only that interpreter.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from jobs.messages import specification as messages

SECONDS = 10
_MEMORY = 2 * 1024**3

# Reads {path: text} and writes {path: [line, column, message]} for the files that cannot be parsed.
_PARSER = f"""
import ast, json, resource, sys, warnings
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY}, {_MEMORY}))
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
warnings.simplefilter("ignore")
found = {{}}
for path, text in json.load(sys.stdin).items():
    try:
        ast.parse(text, path)
    except SyntaxError as error:
        found[path] = [error.lineno or 1, error.offset or 1, error.msg or "invalid syntax"]
    except (RecursionError, MemoryError):
        found[path] = [1, 1, "it is nested too deeply to be parsed"]
    except ValueError as error:
        found[path] = [1, 1, str(error)]
json.dump(found, sys.stdout)
"""


@dataclass(frozen=True)
class SyntaxProblem:
    """Position and message of a syntax error; ``line`` and ``column`` count from 1."""

    line: int
    column: int
    message: str

    @property
    def description(self) -> str:
        return messages.SYNTAX_ERROR(line=self.line, column=self.column, problem=self.message)


class _Clean:
    """Cache of the hashes of texts without a syntax error; the oldest are dropped.

    The same code is often checked again: by the page while it is edited, and with each submission of it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._digests: dict[bytes, None] = {}
        self._lock = threading.Lock()

    def contains(self, text: str) -> bool:
        return _digest(text) in self._digests

    def add(self, texts: Iterable[str]) -> None:
        with self._lock:
            self._digests.update((_digest(text), None) for text in texts)
            while len(self._digests) > self._most:
                del self._digests[next(iter(self._digests))]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


_CLEAN = _Clean(most=4096)


def syntax_problems(files: Mapping[str, str]) -> dict[str, SyntaxProblem]:
    """Return the syntax errors of the Python files among ``files`` (path to text), by path."""
    sources = {path: text for path, text in files.items() if path.endswith(".py") and not _CLEAN.contains(text)}
    if not sources:
        return {}
    found = _parse_apart(sources)
    if found is None:
        problems = {path: problem for path, text in sources.items() if (problem := _alone(path, text))}
    else:
        problems = {path: SyntaxProblem(*place) for path, place in found.items()}
    _CLEAN.add(text for path, text in sources.items() if path not in problems)
    return problems


def _alone(path: str, text: str) -> SyntaxProblem | None:
    found = _parse_apart({path: text})
    if found is None:
        return SyntaxProblem(1, 1, "the parser gave up on it; make the file smaller or simpler")
    return SyntaxProblem(*found[path]) if path in found else None


def _parse_apart(sources: Mapping[str, str]) -> dict[str, tuple[int, int, str]] | None:
    """Return the errors by path; None if the interpreter crashed or exceeded its time on these texts."""
    command = (sys.executable, "-I", "-S", "-c", _PARSER)
    try:
        done = subprocess.run(
            command, input=json.dumps(sources), capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        return None
    answer: dict[str, tuple[int, int, str]] = json.loads(done.stdout)
    return answer
