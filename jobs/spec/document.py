"""A job specification that is being read: its given values, the values read so far, and its problems. Pure."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jobs.frameworks import definitions as frameworks
from jobs.messages import specification as messages
from jobs.spec import quantities
from jobs.spec.kinds import read_mapping
from runtime import contract
from runtime.messages import paragraph

PROBLEM_LIMIT = 50  # reported at once
COUNT_LIMIT = 200  # files; variables; requirements


class Document:
    """One document, addressed by paths such as ``roles.trainer.memory``.

    Each mapping is checked for unknown names once, before any of its values is given. A rule reads from ``values``
    only fields that come earlier in the order of reading. At most PROBLEM_LIMIT fields have problems.

    * ``names``: the known names of each mapping by its path; the document itself has the path ``""``.
    * ``find_dataset``: raises NotFound if there is no dataset of that name.
    """

    def __init__(
        self,
        body: Mapping[Any, Any],
        names: Mapping[str, tuple[str, ...]],
        find_dataset: Callable[[str], object],
    ) -> None:
        self.find_dataset = find_dataset
        self.values: dict[str, Any] = {}
        self.errors: dict[str, list[str]] = {}
        self.positions: dict[str, dict[str, int]] = {}
        self._names = names
        self._mappings: dict[str, Mapping[Any, Any]] = {"": body}
        self._refuse_unknown("", body)

    # --- Given values ---
    def given(self, path: str) -> Any:
        """Return the value as the document has it; None if it is absent, or its mapping is absent or invalid."""
        parent, _, key = path.rpartition(".")
        return self._mapping(parent).get(key)

    def has(self, path: str) -> bool:
        """Return whether the document has the key, even if its value is null."""
        parent, _, key = path.rpartition(".")
        return key in self._mapping(parent)

    def _mapping(self, path: str) -> Mapping[Any, Any]:
        if path not in self._mappings:
            self._mappings[path] = mapping = self.read(path, read_mapping, {})
            self._refuse_unknown(path, mapping)
        return self._mappings[path]

    def _refuse_unknown(self, path: str, mapping: Mapping[Any, Any]) -> None:
        known = self._names[path]
        for key in itertools.islice((key for key in mapping if key not in known), PROBLEM_LIMIT):
            name = quantities.words(key)[:80]
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = messages.DID_YOU_MEAN(name=near[0]) if near else messages.KNOWN_NAMES(names=", ".join(known))
            self.fail(f"{path}.{name}" if path else name, paragraph(messages.FIELD_UNKNOWN(), hint))

    def read(self, path: str, read: Callable[[Any], Any], default: Any) -> Any:
        """Return ``read`` of the given value; the default if it is absent, or ``read`` refuses it with a message."""
        value = self.given(path)
        if value is None:
            return default
        try:
            return read(value)
        except ValueError as error:
            self.fail(path, str(error))
            return default

    # --- Problems ---
    def fail(self, path: str, message: str) -> None:
        if len(self.errors) < PROBLEM_LIMIT:
            self.errors.setdefault(path, []).append(message)

    def too_many(self, path: str, given: Collection[object], noun: str) -> bool:
        if len(given) > COUNT_LIMIT:
            self.fail(path, messages.TOO_MANY(count=f"{len(given):,}", things=noun, most=COUNT_LIMIT))
        return len(given) > COUNT_LIMIT

    # --- Values that several rules need ---
    @property
    def image(self) -> str:
        """The job's own image, even if its name is invalid; empty for a job that the platform builds."""
        return str(self.values["image"])

    @property
    def framework(self) -> frameworks.Framework:
        return frameworks.TABLE[self.values["framework"]]

    @property
    def together(self) -> bool:
        """Whether all processes find one another once, at the start."""
        return frameworks.meets_once(self.framework.name, self.values[f"roles.{contract.PSERVER}.replicas"])

    @property
    def has_dataset(self) -> bool:
        return bool(self.given("dataset"))
