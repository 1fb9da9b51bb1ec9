"""Values of an installation, parsed from a values file with the table of fields.

All problems are reported at once, each with the path of its value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from portal.deployment.fields import BY_PATH, FIELDS, Field

Values = Mapping[str, Any]
_CREDENTIAL = re.compile(r"passw|passphrase|credential|accesskey|secretkey$|token$|privatekey", re.IGNORECASE)
_BELONGS = (
    "Passwords do not belong in the values file, which you keep and share. Write them to a Secret "
    "(deploy/make_secrets.py makes those of the platform) and its name to"
)


class BadValues(ValueError):
    """A values file cannot be used. ``problems`` has one text for each error."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key that occurs twice: the second value would replace the first silently."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.MarkedYAMLError(None, None, f"the key {key!r} is not a text", key_node.start_mark)
        if key in found:
            raise yaml.MarkedYAMLError(None, None, f"the key {key!r} occurs twice", key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def parse(text: str) -> Values:
    """Return the value of every field by path; fields that the file lacks have their default. Raises BadValues."""
    given = _load(text)
    problems = list(_unknown(given, ""))
    found: dict[str, Any] = {}
    for field in FIELDS:
        present, value = _lookup(given, field.path)
        problem = _problem(field, value) if present else ""
        problems += [problem] if problem else []
        found[field.path] = field.kind.read(value) if present and not problem else field.default
    if problems:
        raise BadValues(problems)
    return found


def _load(text: str) -> dict[str, Any]:
    try:
        found = yaml.load(text, _Loader)  # noqa: S506  a safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"Line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise BadValues([f"{place}{error.problem or 'this is no YAML'}."]) from None
    except yaml.YAMLError as error:
        raise BadValues([f"The file is no YAML: {error}."]) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadValues(["The file has no mapping at its top. Write lines such as `signUp: approval`."])
    return found


def _lookup(given: Mapping[str, Any], path: str) -> tuple[bool, Any]:
    """Return whether the file has a value at the path, and the value."""
    here: Any = given
    for part in path.split("."):
        if not isinstance(here, dict) or part not in here:
            return False, None
        here = here[part]
    return True, here


def _problem(field: Field, value: Any) -> str:
    if not field.kind.accepts(value):
        return f"{field.path} is {value!r}; write {field.kind.expected}."
    wrong = field.check(field.kind.read(value))
    return f"{field.path}: {wrong}." if wrong else ""


def is_default(values: Values, path: str) -> bool:
    return bool(values[path] == BY_PATH[path].default)


def unless_default(values: Values, path: str) -> str | None:
    """Return the value as a text; None if the portal has the same default."""
    return None if is_default(values, path) else str(values[path])


# --- Unknown keys ----------------------------------------------------------------------------------------------------
def _unknown(given: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in given.items():
        path = f"{prefix}{name}"
        if path in BY_PATH:
            continue
        if not any(known.startswith(f"{path}.") for known in BY_PATH):
            yield _stranger(name, path, prefix)
        elif isinstance(value, dict):
            yield from _unknown(value, f"{path}.")
        else:
            below = ", ".join(_names_below(f"{path}."))
            yield f"{path} is {value!r}; write a mapping with {below}."


def _stranger(name: str, path: str, prefix: str) -> str:
    if _CREDENTIAL.search(name):
        # Without the value, which may be a password.
        secrets = [known for known in BY_PATH if known.endswith("existingSecret")]
        near = [known for known in secrets if prefix and known.startswith(prefix)] or secrets
        return f"{path}: {_BELONGS} {' or '.join(near[:1] if prefix else ['existingSecret'])}."
    return f"{path} is unknown. {_nearest(name, prefix)}"


def _nearest(name: str, prefix: str) -> str:
    here = _names_below(prefix)
    if near := difflib.get_close_matches(name, here, n=1):
        return f"Did you mean {prefix}{near[0]}?"
    elsewhere = [path for path in BY_PATH if name.lower() in [part.lower() for part in path.split(".")]]
    elsewhere = elsewhere or [path for path in BY_PATH if difflib.get_close_matches(name, [path.rpartition(".")[2]])]
    if elsewhere:
        return f"Did you mean {elsewhere[0]}?"
    return f"Known here: {', '.join(here)}."


def _names_below(prefix: str) -> list[str]:
    names = (path.removeprefix(prefix).partition(".")[0] for path in BY_PATH if path.startswith(prefix))
    return list(dict.fromkeys(names))
