"""Parser of the costs that a program prints: they become points of its curves. Pure.

``FORMS`` is the table of recognised forms; each row was seen in the output of real programs. A line may carry several
values (``loss: 0.2183 - acc: 0.9375``), of which each name counts once, at its first place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Excludes durations and percentages: "cost: 12.3 ms" describes the machine, not the model.
_NO_UNIT = r"(?!\s*(?:[mun]?s|secs?|seconds?|minutes?)\b|\s*%)"
_NUMBER = r"[-+]?+(?:nan|inf|(?:\d++(?:\.\d*+)?+|\.\d++)(?:e[-+]?+\d++)?+)" + _NO_UNIT
# "avg_reader_cost" is one word and does not match.
_NAME = r"(?<![\w.-])(?:avg_)?(?P<name>(?:val_)?(?:cost|loss|acc|accuracy|auc))"
# Keras's names of validation metrics. Its counts ("val_samples: 500") are on other lines.
_VALIDATION = r"(?<![\w.-])(?P<name>val_[a-z]\w{0,60})"
LONGEST = 2000  # characters of a line that are parsed
MOST_NAMES = 64  # maximum number of curves read from the lines of one process


@dataclass(frozen=True)
class Form:
    """How a value follows its name, and an example of a line."""

    pattern: re.Pattern[str]
    example: str


def _form(between: str, example: str, behind: str = "") -> Form:
    return Form(re.compile(f"{_NAME}{between}(?P<value>{_NUMBER}){behind}", re.IGNORECASE), example)


FORMS = (
    # Output of Paddle's Executor.train_from_dataset for its fetch_list.
    _form(r"\[\d+\]\s*:\s*\[", "time: [2026-11-22 14:41:44], batch: [100], cost[1]:[0.0114136]", r"\s*\]"),
    # Values printed as arrays with one element.
    _form(r"\s*[:=]?\s*\[+\s*", "epoch 0, batch 10, avg_cost: [0.69314718]", r"\s*\]"),
    # Model.fit, PaddleRec, PaddleClas, PaddleDetection; the books' "Pass 0, Batch 100, Cost 12.35"; any plain form.
    _form(r"\s*[:=]\s*", "step 10/938 [..............] - loss: 0.2183 - acc: 0.9375 - 12ms/step"),
    _form(r"\s+", "Pass 0, Batch 100, Cost 12.35"),
)

_BESIDE = re.compile(rf"{_VALIDATION}\s*[:=]\s*(?P<value>{_NUMBER})", re.IGNORECASE)

# Position of the training in a line: the finest unit counts.
_STEPS = tuple(
    re.compile(rf"(?<![\w.])(?:{words})\b\s*[:=]?\s*\[?\s*(\d{{1,15}})\b", re.IGNORECASE)
    for words in ("global_step|step|batch_id|batch|iter|iteration", "epoch|pass|pass_id")
)
# Values measured beside the training; they get a curve of their own.
_ASIDE = re.compile(r"(?<![\w.])(?:test|eval|valid|validation)\b", re.IGNORECASE)


# Model.fit prints the same lines during evaluation, between these two.
_ASIDE_FROM, _ASIDE_TO = "Eval begin", "Eval samples"


class CostReader:
    """Reader of the lines of one process.

    Steps only grow. Where a count restarts, as with every epoch, the steps continue from the last one. Where a line has
    no step, the lines are counted.

    ``memory``: the state of another reader of the same program, from which this one continues.
    """

    def __init__(self, memory: Mapping[str, Any] | None = None) -> None:
        memory = memory or {}
        self._last: dict[str, int] = dict(memory.get("last", {}))
        self._base: dict[str, int] = dict(memory.get("base", {}))
        self._evaluating = bool(memory.get("evaluating"))

    @property
    def memory(self) -> dict[str, Any]:
        """State of the reader as JSON values."""
        return {"last": dict(self._last), "base": dict(self._base), "evaluating": self._evaluating}

    def entries(self, at: float, line: str) -> list[str]:
        """Return the points in a line as entries of the spool: ``[unix time, step, name, value]`` in JSON."""
        return [json.dumps(point) for point in self.points(at, line)]

    def points(self, at: float, line: str) -> list[tuple[float, int, str, float | str]]:
        """Return the points in a line: unix time, step, name, value.

        NaN and infinities are strings, as JavaScript names them.
        """
        line = line[:LONGEST]
        if line.startswith((_ASIDE_FROM, _ASIDE_TO)):
            self._evaluating = line.startswith(_ASIDE_FROM)
        found = dict(_values(line))
        if not found:
            return []
        aside, named = "test_" if self._evaluating or _ASIDE.search(line) else "", _step(line)
        curves = {name if name.startswith("val_") else aside + name: value for name, value in found.items()}
        known = [name for name in curves if name in self._last or len(self._last) < MOST_NAMES]
        return [(at, self._step_of(name, named), name, curves[name]) for name in known]

    def _step_of(self, name: str, named: int | None) -> int:
        last, base = self._last.get(name), self._base.get(name, 0)
        if last is None:
            step = named or 0
        elif named is None:
            step = last + 1
        else:
            if base + named <= last:
                base = self._base[name] = last + 1 if named == 0 else last
            step = base + named
        self._last[name] = step
        return step


def _values(line: str) -> Iterator[tuple[str, float | str]]:
    seen: set[str] = set()
    for form in FORMS:
        for match in form.pattern.finditer(line):
            name = match["name"].lower()
            if name not in seen:
                seen.add(name)
                yield name, _value(match["value"])
    for match in _BESIDE.finditer(line) if seen else ():
        name = match["name"].lower()
        if name not in seen:
            seen.add(name)
            yield name, _value(match["value"])


def _value(text: str) -> float | str:
    """Return the number, or its name as text for NaN and infinities."""
    number = float(text)
    if number != number:
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _step(line: str) -> int | None:
    for pattern in _STEPS:
        if match := pattern.search(line):
            return int(match[1])
    return None
