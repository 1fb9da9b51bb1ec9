"""Assignment of files to training and testing by the words in their paths. Pure.

``train/a.csv``, ``digits-test.csv`` and ``2024/validation-00000-of-00003.tar`` name a split. If no file is named for
training, those without a split are for training; if there are none of these either, all are. ``t10k`` of MNIST means
test.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

TRAIN, TEST, VALIDATION = "train", "test", "validation"

_WORDS: Mapping[str, str] = {
    "train": TRAIN,
    "training": TRAIN,
    "test": TEST,
    "testing": TEST,
    "val": VALIDATION,
    "valid": VALIDATION,
    "validation": VALIDATION,
    "dev": VALIDATION,
}
_BETWEEN = re.compile(r"[^a-z]+")
_TEST_OF_MNIST = "t10k"  # the ten thousand digits for testing

Unit = TypeVar("Unit")


def split_of(path: str) -> str:
    """Return the first split that a path names, or an empty text."""
    words = _BETWEEN.split(path.lower().replace(_TEST_OF_MNIST, TEST))
    return next((_WORDS[word] for word in words if word in _WORDS), "")


def divide(paths: Iterable[str]) -> Mapping[str, list[str]]:
    """Return the paths of each split, in their order. ``train`` is always among the splits, and first."""
    return assign((split_of(path), path) for path in paths)


def assign(units: Iterable[tuple[str, Unit]]) -> Mapping[str, list[Unit]]:
    """Do the same for any units, each with the split that it names or an empty one."""
    named: dict[str, list[Unit]] = {TRAIN: []}
    everything = []
    for split, unit in units:
        everything.append(unit)
        named.setdefault(split, []).append(unit)
    rest = named.pop("", [])
    named[TRAIN] = named[TRAIN] or rest or everything
    return named
