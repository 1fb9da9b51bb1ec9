"""The manifests of an installation, from the files of ``deploy/kubernetes`` and a values file. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from portal.deployment import consistency, settings_of_values
from portal.deployment.objects import Objects, dump, in_order, load
from portal.deployment.transformations import transformed
from portal.deployment.values import BadValues, Values, parse


@dataclass(frozen=True, slots=True)
class Rendered:
    """The objects in the order to apply them, and what the operator should know."""

    objects: Objects
    warnings: tuple[str, ...]

    @property
    def text(self) -> str:
        return dump(self.objects)


def checked(text: str, known_settings: Set[str]) -> Values:
    """Return the values of a values file. Raises BadValues with all problems of it."""
    values = parse(text)
    problems = [
        *settings_of_values.problems(values["settings"], known_settings),
        *consistency.problems(values),
    ]
    if problems:
        raise BadValues(problems)
    return values


def rendered(files: Sequence[str], values_text: str, known_settings: Set[str]) -> Rendered:
    """Return the objects of an installation. ``files``: the texts of the manifests in the order of the kustomization.

    Raises BadValues, and MissingObject if the manifests lack what a value changes.
    """
    values = checked(values_text, known_settings)
    objects = in_order(transformed(load(files), values))
    return Rendered(objects, tuple(consistency.warnings(values)))
