"""Which files are for training and which for testing, by the words in their paths. Pure.

``train/a.csv``, ``digits-test.csv`` and ``2024/validation-00000-of-00003.tar`` say it. Where no file says that it is
for training, those are that say nothing; where there are none of these either, all are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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


def split_of(path: str) -> str:
    """The split that a path names first; empty where it names none."""
    words = _BETWEEN.split(path.lower())
    return next((_WORDS[word] for word in words if word in _WORDS), "")


def divide(paths: Iterable[str]) -> Mapping[str, list[str]]:
    """The paths of each split, in their order; ``train`` is always among them, and first."""
    told: dict[str, list[str]] = {TRAIN: []}
    everything = []
    for path in paths:
        everything.append(path)
        told.setdefault(split_of(path), []).append(path)
    rest = told.pop("", [])
    told[TRAIN] = told[TRAIN] or rest or everything
    return told
