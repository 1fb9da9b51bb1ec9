"""Parsing of specifications against the catalogue of datasets."""

from __future__ import annotations

from collections.abc import Callable

from datasets import selectors as datasets
from jobs.spec import parser
from jobs.spec.model import JobSpec


def parse(source: object, *, find_dataset: Callable[[str], object] = datasets.find) -> JobSpec:
    """Call ``parser.parse`` with the datasets of this portal. Raises ValidationFailed."""
    return parser.parse(source, find_dataset=find_dataset)
