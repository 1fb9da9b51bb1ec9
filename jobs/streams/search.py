"""Search in log lines. A user's regular expression runs in a child process, which is killed when it takes too long.

Python's expressions backtrack: ``(a+)+b`` on one line of a few dozen characters never finishes in practice, holds the
interpreter's lock, and cannot be interrupted from outside. No inspection of the pattern detects this reliably; a
deadline does.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from jobs.messages import jobs as messages
from jobs.streams.entries import LogLine
from portal.common.errors import ValidationFailed

PATTERN_LIMIT = 500  # characters

_TOO_SLOW = messages.PATTERN_TOO_SLOW()


class BadPattern(ValidationFailed):
    """Raised for a pattern that is no regular expression, is too long, or takes too long."""

    def __init__(self, why: str) -> None:
        super().__init__({"regex": [why]})


class Matcher:
    """Base of the matchers; keeps every line. ``expired``: whether the page's deadline has passed."""

    def __init__(self, deadline: float = float("inf")) -> None:
        self._deadline = deadline

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self._deadline

    def matching(self, lines: list[LogLine]) -> list[LogLine]:
        return lines


class _TextMatcher(Matcher):
    def __init__(self, text: str, deadline: float) -> None:
        super().__init__(deadline)
        self._text = text.casefold()

    def matching(self, lines: list[LogLine]) -> list[LogLine]:
        return [line for line in lines if self._text in line.text.casefold()]


class _RegexMatcher(Matcher):
    """Sends a JSON list of texts to the child, which returns a JSON list of the indices that match."""

    def __init__(self, questions: IO[bytes], answers: IO[bytes], deadline: float) -> None:
        super().__init__(deadline)
        self._questions, self._answers = questions, answers

    def matching(self, lines: list[LogLine]) -> list[LogLine]:
        if not lines:
            return []
        self._questions.write(json.dumps([line.text for line in lines]).encode() + b"\n")
        self._questions.flush()
        # Each request gets at least one second: a search that reaches its deadline is not a slow pattern.
        ready, _, _ = select.select([self._answers], [], [], max(1.0, self._deadline - time.monotonic()))
        answer = self._answers.readline() if ready else b""
        if not answer:
            raise BadPattern(_TOO_SLOW)
        return [lines[place] for place in json.loads(answer)]


@contextlib.contextmanager
def matcher(*, text: str | None, regex: str | None, seconds: float) -> Iterator[Matcher]:
    """Return a matcher for the search. Raises BadPattern."""
    deadline = time.monotonic() + seconds
    if regex:
        with _child(regex) as (questions, answers):
            yield _RegexMatcher(questions, answers, deadline)
    elif text:
        yield _TextMatcher(text, deadline)
    else:
        yield Matcher(deadline)


@contextlib.contextmanager
def _child(pattern: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    check_pattern(pattern)
    argv = [sys.executable, "-I", "-S", str(Path(__file__).with_name("regex_worker.py")), pattern]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield cast(IO[bytes], child.stdin), cast(IO[bytes], child.stdout)
    finally:
        child.kill()
        child.communicate()


def check_pattern(pattern: str) -> None:
    """Raise BadPattern if the pattern cannot be used; the message has the position of a syntax error."""
    if "\0" in pattern:
        raise BadPattern(messages.PATTERN_CONTAINS_NUL())
    if len(pattern) > PATTERN_LIMIT:
        raise BadPattern(messages.PATTERN_TOO_LONG(count=len(pattern), most=PATTERN_LIMIT))
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadPattern(messages.PATTERN_INVALID(problem=error)) from None
