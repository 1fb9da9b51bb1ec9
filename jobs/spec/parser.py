"""Parser of job specifications: one schema for the form, the API, the command line and files.

``parse`` returns a resolved JobSpec, or raises ValidationFailed with every problem by field. A JobSpec is immutable;
the job stores its ``to_json``, and the files go to the code snapshot.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any, TypeVar

import yaml
from packaging.requirements import InvalidRequirement, Requirement

from jobs.frameworks import definitions as frameworks
from jobs.spec import quantities
from jobs.spec.model import DEFAULT_MEMORY, MASTER_CPU, JobSpec, RoleSpec
from jobs.spec.syntax_check import SyntaxProblem, syntax_problems
from portal.common.errors import NotFound, ValidationFailed
from runtime import contract

# Modes of the parameter servers, which define how pushes become versions; users can change the number in brackets.
MODES = ("sync", "async", "m_of_n(2)", "ssp(3)", "outer(100)")
PRIORITIES = ("low", "normal", "high")

FILE_LIMIT = 1024**2  # bytes of one file
FILES_LIMIT = 5 * 1024**2  # bytes of all files
COUNT_LIMIT = 200  # files; variables; requirements
ENVIRONMENT_LIMIT = 64 * 1024  # bytes of all variables, which reach the agent as one
DEPTH_LIMIT = 20  # of nested lists and mappings
PROBLEM_LIMIT = 50  # reported at once
DOCUMENT_LIMIT = 16 * 1024**2  # bytes of a specification as text
SMALLEST_MEMORY = 128 * 1024**2  # an interpreter with NumPy does not start in less
MOST_REPLICAS = 256
# One serves, one is on standby.
MOST_MASTERS = 2
MOST_PASSES = 100_000
MOST_RETRIES = 10
LONGEST = timedelta(days=30)
WHOLE = "spec"  # the field name for problems of the document itself

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_RESERVED = "REGATTA_"
IMAGE_LENGTH = 300
# [host[:port]/]path[:tag][@digest]
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


# --- Reading ---------------------------------------------------------------------------------------------------------
def parse(source: object, *, find_dataset: Callable[[str], object]) -> JobSpec:
    """Return the specification that ``source`` (a mapping, or YAML or JSON text) describes.

    ``find_dataset`` is called with the name of the dataset and raises NotFound if it does not exist.

    Raises ValidationFailed: ``errors`` by field path (``roles.trainer.memory``); its extra ``positions`` holds
    ``{"files.train.py": {"line", "column"}}`` for Python files that cannot be parsed.
    """
    body = _load(source) if isinstance(source, str | bytes) else source
    if not isinstance(body, Mapping):
        raise ValidationFailed({WHOLE: ["A specification is a mapping of fields such as name, files and roles."]})
    reader = _Reader(body, find_dataset)
    spec = reader.read()
    if reader.errors:
        failure = ValidationFailed(reader.errors)
        failure.extra["positions"] = reader.positions
        raise failure
    return spec


def _load(text: str | bytes) -> object:
    if len(text) > DOCUMENT_LIMIT:
        raise ValidationFailed({WHOLE: [f"It is larger than {DOCUMENT_LIMIT // 1024**2} MiB."]})
    try:
        for depth, event in _events(text):
            # With aliases a few lines can expand to gigabytes, and a job needs none.
            if isinstance(event, yaml.AliasEvent):
                raise ValidationFailed({WHOLE: ["YAML aliases (*name) are not taken; write the value out."]})
            if depth > DEPTH_LIMIT:
                raise ValidationFailed({WHOLE: ["It is nested too deeply."]})
        body: object = yaml.load(text, Loader=_YAML)  # noqa: S506  a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValidationFailed({WHOLE: [f"It is no YAML: {_yaml_problem(error)}"]}) from None
    return body


def _events(text: str | bytes) -> Iterator[tuple[int, yaml.Event]]:
    """Yield the parser's events with their nesting depth."""
    depth = 0
    for event in yaml.parse(text, Loader=_YAML):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        yield depth, event


_YAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _yaml_problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}."
    return "it cannot be read."


Amount = TypeVar("Amount")
_MISSING = object()


class _Reader:
    """Reads one document and collects its problems; a field with a problem gets its default."""

    FIELDS: tuple[str, ...] = (
        "name",
        "framework",
        "image",
        "entrypoint",
        "files",
        "requirements",
        "dataset",
        "passes",
        "mode",
        "roles",
        "env",
        "priority",
        "timeout",
        "retries",
        "elastic",
    )
    ROLES: Mapping[str, tuple[str, ...]] = {
        contract.TRAINER: ("replicas", "min", "max", "cpu", "memory", "gpu"),
        contract.PSERVER: ("replicas", "cpu", "memory"),
        contract.MASTER: ("replicas", "cpu"),
    }

    def __init__(self, body: Mapping[Any, Any], find_dataset: Callable[[str], object]) -> None:
        self.body = body
        self.find_dataset = find_dataset
        self.errors: dict[str, list[str]] = {}
        self.positions: dict[str, dict[str, int]] = {}
        self.row = frameworks.TABLE[frameworks.NATIVE]
        self.image = ""
        self.together = False

    def read(self) -> JobSpec:
        self.known_keys("", self.body, self.FIELDS)
        self.image = self.own_image()
        files = self.files()
        self.row = frameworks.TABLE[self.framework()]
        roles = self.mapping("roles", self.body, "roles")
        self.known_keys("roles.", roles, tuple(self.ROLES))
        pserver = self.role(roles, contract.PSERVER, self.row.least_servers, self.servers())
        self.together = frameworks.meets_once(self.row.name, pserver.replicas)
        trainer = self.role(roles, contract.TRAINER, 1, 1)
        masters, master_cpu = self.masters(roles)
        return JobSpec(
            name=self.name(),
            framework=self.row.name,
            image=self.image,
            entrypoint=self.entrypoint(files),
            files=files,
            requirements=self.requirements(),
            dataset=self.dataset(),
            passes=self.integer("passes", self.body, "passes", 1, 1, MOST_PASSES),
            mode=self.mode(),
            trainer=trainer,
            pserver=pserver,
            masters=masters,
            master_cpu=master_cpu,
            env=self.env(),
            priority=self.choice("priority", PRIORITIES, "normal"),
            timeout=self.timeout(),
            retries=self.integer("retries", self.body, "retries", 0, 0, MOST_RETRIES),
            elastic=self.elastic(trainer),
        )

    # --- Helpers ---
    def fail(self, path: str, message: str) -> None:
        if len(self.errors) < PROBLEM_LIMIT:
            self.errors.setdefault(path, []).append(message)

    def too_many(self, path: str, given: Collection[object], noun: str) -> bool:
        if len(given) > COUNT_LIMIT:
            self.fail(path, f"These are {len(given):,} {noun}; at most {COUNT_LIMIT} are taken.")
        return len(given) > COUNT_LIMIT

    def known_keys(self, path: str, body: Mapping[Any, Any], known: tuple[str, ...]) -> None:
        for key in itertools.islice((key for key in body if key not in known), PROBLEM_LIMIT):
            name = quantities.words(key)[:80]
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(known)}."
            self.fail(f"{path}{name}", f"There is no field of this name. {hint}")

    def text(self, path: str, default: str) -> str:
        value = self.body.get(path, _MISSING)
        if value is _MISSING or value is None:
            return default
        if isinstance(value, str):
            return value
        self.fail(path, "Write text here.")
        return default

    def integer(self, path: str, body: Mapping[Any, Any], key: str, default: int, least: int, most: int) -> int:
        value = body.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.fail(path, f"{quantities.shown(value)} does not do: write a whole number from {least} to {most}.")
            return default
        return value

    def choice(self, path: str, known: tuple[str, ...], default: str) -> str:
        value = self.text(path, default)
        if value not in known:
            self.fail(path, f"{quantities.shown(value)} is not known. Choose one of {', '.join(known)}.")
            return default
        return value

    def mapping(self, path: str, body: Mapping[Any, Any], key: str) -> Mapping[Any, Any]:
        value = body.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.fail(path, "Write a mapping of names to values here.")
            return {}
        return value

    # --- Fields ---
    def name(self) -> str:
        value = self.text("name", "")
        if not value and "name" not in self.errors:
            self.fail("name", "Give the job a name, such as digits.")
        elif value and not _LABEL.fullmatch(value):
            self.fail("name", _name_message(value))
        return value

    def framework(self) -> str:
        value = self.text("framework", frameworks.COMMAND if self.image else frameworks.NATIVE)
        if value in frameworks.TABLE:
            return value
        names = _or(frameworks.NAMES)
        self.fail("framework", f"{quantities.shown(value)} is no framework. This installation runs {names}.")
        return frameworks.NATIVE

    def own_image(self) -> str:
        """Return the job's own image. It runs without the platform's help, so fields that need it are refused."""
        value = self.text("image", "").strip()
        if not value:
            return ""
        if len(value) > IMAGE_LENGTH or not _IMAGE.fullmatch(value):
            given = quantities.shown(value)
            self.fail(
                "image",
                f"{given} names no image: write a name and perhaps a registry and a tag, such as "
                "registry.example.com/team/train:1.",
            )
        if self.body.get("framework", frameworks.COMMAND) != frameworks.COMMAND:
            self.fail("framework", "An image is run as it is, which is the framework command: write that here.")
        for brought in ("files", "requirements"):
            if self.body.get(brought):
                self.fail(brought, "Nothing is put into an image that is given. Leave this out, or leave image out.")
        return value

    def servers(self) -> int:
        """Return the default number of parameter servers."""
        return 0 if self.image else frameworks.usual_servers(self.row, has_dataset=bool(self.body.get("dataset")))

    def mode(self) -> str:
        value = self.text("mode", "sync").replace(" ", "")
        try:
            contract.parse_mode(value)
        except ValueError as error:
            self.fail("mode", str(error))
            return MODES[0]
        return value

    def dataset(self) -> str:
        value = self.text("dataset", "")
        if value:
            try:
                self.find_dataset(value)
            except NotFound as missing:
                self.fail("dataset", missing.detail)
        return value

    def timeout(self) -> timedelta:
        default = timedelta(hours=1)
        length = self.quantity("timeout", self.body, "timeout", quantities.span, default)
        if not timedelta(seconds=1) <= length <= LONGEST:
            self.fail("timeout", f"Write a time between 1s and {quantities.span_text(LONGEST)}.")
            return default
        return length

    def elastic(self, trainer: RoleSpec) -> bool:
        """Return whether the job is elastic; by default, if it may have more trainers than it starts with."""
        value = self.body.get("elastic")
        if value is None:
            return trainer.max > trainer.replicas
        if not isinstance(value, bool):
            self.fail("elastic", "Write true or false.")
        elif value and trainer.min == trainer.max:
            self.fail(
                "elastic", "Give roles.trainer a max above its min: between them the number of trainers may change."
            )
        return value is True

    def quantity(
        self, path: str, body: Mapping[Any, Any], key: str, read: Callable[[object], Amount], default: Amount
    ) -> Amount:
        if body.get(key) is None:
            return default
        try:
            return read(body[key])
        except ValueError as error:
            self.fail(path, str(error))
            return default

    def requirements(self) -> tuple[str, ...]:
        value = self.body.get("requirements") or ()
        if not isinstance(value, list | tuple) or not all(isinstance(line, str) for line in value):
            self.fail("requirements", "Write a list of pip requirements, such as [pandas==2.3.3].")
            return ()
        if self.too_many("requirements", value, "requirements"):
            return ()
        for index, line in enumerate(value):
            problem = _requirement_problem(line)
            if problem:
                self.fail(f"requirements.{index}", problem)
        return tuple(line.strip() for line in value)

    def env(self) -> dict[str, str]:
        variables = self.mapping("env", self.body, "env")
        if self.too_many("env", variables, "variables"):
            return {}
        for name, value in variables.items():
            problem = _variable_problem(name, value)
            if problem:
                self.fail(f"env.{quantities.words(name)[:80]}", problem)
        env = {name: value for name, value in variables.items() if not _variable_problem(name, value)}
        if len(json.dumps(env)) > ENVIRONMENT_LIMIT:
            self.fail("env", f"Together they are longer than {ENVIRONMENT_LIMIT // 1024} KiB. Put data into a file.")
        return env

    # --- Roles ---
    def role(self, roles: Mapping[Any, Any], role: str, fewest: int, usual: int) -> RoleSpec:
        path = f"roles.{role}"
        body = self.mapping(path, roles, role)
        self.known_keys(f"{path}.", body, self.ROLES[role])
        replicas = self.integer(f"{path}.replicas", body, "replicas", usual, fewest, MOST_REPLICAS)
        if role == contract.PSERVER and replicas and not self.row.may_have_servers:
            self.fail(f"{path}.replicas", f"A {self.row.name} job has no parameter servers. Leave them out.")
        elif role == contract.PSERVER and replicas and self.image:
            self.fail(f"{path}.replicas", "A job with an image of its own has no parameter servers. Leave them out.")
        elif role == contract.PSERVER and replicas and self.row.servers_need_data and not self.body.get("dataset"):
            self.fail(
                f"{path}.replicas", f"Parameter servers of a {self.row.name} job need a dataset. Name one, or set 0."
            )
        least, most = self.bounds(path, body, replicas) if role == contract.TRAINER else (1, replicas)
        return RoleSpec(
            replicas=replicas,
            min=least,
            max=most,
            cpu=self.cpu(path, body),
            memory=self.memory(path, body),
            gpu=self.integer(f"{path}.gpu", body, "gpu", 0, 0, 64) if role == contract.TRAINER else 0,
        )

    def masters(self, roles: Mapping[Any, Any]) -> tuple[int, float]:
        path = f"roles.{contract.MASTER}"
        body = self.mapping(path, roles, contract.MASTER)
        self.known_keys(f"{path}.", body, self.ROLES[contract.MASTER])
        masters = self.integer(f"{path}.replicas", body, "replicas", 1, 1, MOST_MASTERS)
        cpu = self.cpu(path, body, MASTER_CPU)
        for key, given in (("replicas", masters > 1), ("cpu", "cpu" in body)):
            if given and self.together:
                self.fail(f"{path}.{key}", f"A {self.row.name} job has no master. Leave this out.")
        return masters, cpu

    def bounds(self, path: str, body: Mapping[Any, Any], replicas: int) -> tuple[int, int]:
        if self.together:
            return self.fixed(path, body, replicas)
        least = self.integer(f"{path}.min", body, "min", 1, 1, MOST_REPLICAS)
        most = self.integer(f"{path}.max", body, "max", max(replicas, least), 1, MOST_REPLICAS)
        if f"{path}.replicas" in self.errors:
            return least, most
        if least > replicas:
            self.fail(f"{path}.min", f"{least} is more than the {replicas} replicas that the job starts with.")
        if most < replicas:
            self.fail(f"{path}.max", f"{most} is less than the {replicas} replicas that the job starts with.")
        return least, most

    def fixed(self, path: str, body: Mapping[Any, Any], replicas: int) -> tuple[int, int]:
        for key in ("min", "max"):
            if self.integer(f"{path}.{key}", body, key, replicas, 1, MOST_REPLICAS) != replicas:
                self.fail(
                    f"{path}.{key}",
                    f"The trainers of a {self.row.name} job meet once, at the start, and all have to be there. "
                    f"Leave this out, or write {replicas}.",
                )
        return replicas, replicas

    def cpu(self, path: str, body: Mapping[Any, Any], usual: float = 1.0) -> float:
        amount = self.quantity(f"{path}.cpu", body, "cpu", quantities.cores, usual)
        if not 0.01 <= amount <= 1024:
            self.fail(f"{path}.cpu", "Write a number of cores from 0.01 to 1024.")
            return 1.0
        return amount

    def memory(self, path: str, body: Mapping[Any, Any]) -> int:
        amount = self.quantity(f"{path}.memory", body, "memory", quantities.memory, DEFAULT_MEMORY)
        if amount < SMALLEST_MEMORY:
            least = quantities.memory_text(SMALLEST_MEMORY)
            self.fail(f"{path}.memory", f"A replica needs at least {least} to start; ask for that much.")
            return DEFAULT_MEMORY
        return amount

    # --- Files ---
    def files(self) -> dict[str, str]:
        given = self.mapping("files", self.body, "files")
        if self.image:
            return {}
        if not given:
            self.fail("files", "Add at least the entrypoint, such as train.py.")
            return {}
        if self.too_many("files", given, "files"):
            return {}
        valid = {path: text for path, text in given.items() if self.is_valid_file(path, text)}
        self.files_together(valid)
        for path, problem in syntax_problems(valid).items():
            self.syntax(path, problem)
        return valid

    def is_valid_file(self, path: object, text: object) -> bool:
        problem = _path_problem(path) or _text_problem(text)
        if problem:
            self.fail(f"files.{quantities.words(path)[:200]}", problem)
        return not problem

    def files_together(self, files: Mapping[str, str]) -> None:
        total = sum(len(text.encode()) for text in files.values())
        if total > FILES_LIMIT:
            self.fail("files", f"Together they have {total:,} bytes; at most {FILES_LIMIT:,} are taken.")
        for path in files:
            folder = next((str(up) for up in PurePosixPath(path).parents if str(up) in files), None)
            if folder:
                self.fail(f"files.{path}", f"{folder} is a file; it cannot be a folder too.")

    def syntax(self, path: str, problem: SyntaxProblem) -> None:
        self.fail(f"files.{path}", problem.description)
        self.positions[f"files.{path}"] = {"line": problem.line, "column": problem.column}

    def command(self) -> str:
        """Return a program and its arguments as one line, from a list or from a line without special shell syntax."""
        value = self.body.get("entrypoint")
        if self.image and not value:
            return ""  # the image has its own entrypoint
        try:
            words = shlex.split(value) if isinstance(value, str) else value
        except ValueError:
            words = None
        if (
            not isinstance(words, list)
            or not words
            or not all(isinstance(word, str) and word and "\x00" not in word for word in words)
        ):
            self.fail("entrypoint", "Write the program and its arguments, such as [sh, train.sh].")
            return ""
        return shlex.join(words)

    def entrypoint(self, files: Mapping[str, str]) -> str:
        if self.row.name == frameworks.COMMAND:
            return self.command()
        value = self.text("entrypoint", "train.py")
        given = self.body.get("files")
        if not value.endswith(".py"):
            self.fail("entrypoint", f"{quantities.shown(value)} is no Python file; name one that ends in .py.")
        elif isinstance(given, Mapping) and given and value not in given:
            names = ", ".join(sorted(path for path in files if path.endswith(".py"))[:5]) or "no Python file"
            self.fail("entrypoint", f"{quantities.shown(value)} is not among the files: there is {names}.")
        return value


# --- Problems of single values ---------------------------------------------------------------------------------------
def _name_message(value: str) -> str:
    proposal = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:63].strip("-") or "digits"
    rule = "Write up to 63 small letters, digits and hyphens, with a letter or digit at both ends"
    return f"{quantities.shown(value)} cannot be a name. {rule}, such as {proposal}."


def _requirement_problem(line: str) -> str:
    if len(line) > 300 or _UNPRINTABLE.search(line):
        return "Write one requirement of at most 300 characters on one line."
    if line.lstrip().startswith("-"):
        return "Options of pip are not taken here, only requirements such as pandas==2.3.3."
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        problem = f"{quantities.shown(line)} is no pip requirement."
        return f"{problem} Write a name and perhaps a version, such as pandas==2.3.3."
    if requirement.url:
        return "Addresses are not taken here; name a released package, such as pandas==2.3.3."
    return ""


def _variable_problem(name: object, value: object) -> str:
    if not isinstance(name, str) or not _ENVIRONMENT_NAME.fullmatch(name):
        return "A variable's name has letters, digits and underscores and does not begin with a digit."
    if name.upper().startswith(_RESERVED):
        return f"Names that begin with {_RESERVED} belong to the platform; choose another."
    if not isinstance(value, str):
        return f'The value is no text; put it in quotes: "{value}".'
    if "\x00" in value or not _encodable(value):
        return "The value holds a character that no environment variable may have."
    return "The value is longer than 32 KiB." if len(value) > 32 * 1024 else ""


def _path_problem(path: object) -> str:
    if not isinstance(path, str) or not path or len(path) > 200 or _UNPRINTABLE.search(path) or not _encodable(path):
        return "A file's name has 1 to 200 printable characters."
    if path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        return "Write the path relative to the job's folder, with / between its parts and without . or .. as a part."
    if any(len(part.encode()) > 200 for part in path.split("/")):
        return "One part of the path is too long."
    top = path.split("/")[0]
    if top in ("runtime.py", "runtime"):
        return f"{top} would hide the platform's own module runtime; choose another name."
    return ""


def _text_problem(text: object) -> str:
    if not isinstance(text, str):
        return "The content is no text."
    if not _encodable(text):
        return "The content cannot be written as UTF-8."
    size = len(text.encode())
    if size > FILE_LIMIT:
        return f"It has {size:,} bytes; a file may have {FILE_LIMIT:,}. Put data into a dataset."
    return ""


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _or(words: tuple[str, ...]) -> str:
    return " or ".join(words)
