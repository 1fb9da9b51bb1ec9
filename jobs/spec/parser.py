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
from jobs.messages import jobs as job_messages
from jobs.messages import specification as specification_messages
from jobs.spec import quantities
from jobs.spec.model import DEFAULT_MEMORY, MASTER_CPU, JobSpec, RoleSpec
from jobs.spec.syntax_check import SyntaxProblem, syntax_problems
from portal.common.errors import NotFound, ValidationFailed
from runtime import contract
from runtime.messages import paragraph

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
        raise ValidationFailed({WHOLE: [specification_messages.NOT_A_MAPPING()]})
    reader = _Reader(body, find_dataset)
    spec = reader.read()
    if reader.errors:
        failure = ValidationFailed(reader.errors)
        failure.extra["positions"] = reader.positions
        raise failure
    return spec


def _load(text: str | bytes) -> object:
    if len(text) > DOCUMENT_LIMIT:
        raise ValidationFailed({WHOLE: [specification_messages.DOCUMENT_TOO_LARGE(size=DOCUMENT_LIMIT // 1024**2)]})
    try:
        for depth, event in _events(text):
            # With aliases a few lines can expand to gigabytes, and a job needs none.
            if isinstance(event, yaml.AliasEvent):
                raise ValidationFailed({WHOLE: [specification_messages.YAML_ALIAS()]})
            if depth > DEPTH_LIMIT:
                raise ValidationFailed({WHOLE: [specification_messages.NESTED_TOO_DEEPLY()]})
        body: object = yaml.load(text, Loader=_YAML)  # noqa: S506  a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValidationFailed({WHOLE: [specification_messages.YAML_INVALID(problem=_yaml_problem(error))]}) from None
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
            self.fail(path, specification_messages.TOO_MANY(count=f"{len(given):,}", things=noun, most=COUNT_LIMIT))
        return len(given) > COUNT_LIMIT

    def known_keys(self, path: str, body: Mapping[Any, Any], known: tuple[str, ...]) -> None:
        for key in itertools.islice((key for key in body if key not in known), PROBLEM_LIMIT):
            name = quantities.words(key)[:80]
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = (
                specification_messages.DID_YOU_MEAN(name=near[0])
                if near
                else specification_messages.KNOWN_NAMES(names=", ".join(known))
            )
            self.fail(f"{path}{name}", paragraph(specification_messages.FIELD_UNKNOWN(), hint))

    def text(self, path: str, default: str) -> str:
        value = self.body.get(path, _MISSING)
        if value is _MISSING or value is None:
            return default
        if isinstance(value, str):
            return value
        self.fail(path, specification_messages.NOT_TEXT())
        return default

    def integer(self, path: str, body: Mapping[Any, Any], key: str, default: int, least: int, most: int) -> int:
        value = body.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.fail(
                path, specification_messages.NUMBER_INVALID(value=quantities.shown(value), least=least, most=most)
            )
            return default
        return value

    def choice(self, path: str, known: tuple[str, ...], default: str) -> str:
        value = self.text(path, default)
        if value not in known:
            self.fail(path, specification_messages.VALUE_UNKNOWN(value=quantities.shown(value), names=", ".join(known)))
            return default
        return value

    def mapping(self, path: str, body: Mapping[Any, Any], key: str) -> Mapping[Any, Any]:
        value = body.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.fail(path, specification_messages.NOT_A_MAPPING_OF_NAMES())
            return {}
        return value

    # --- Fields ---
    def name(self) -> str:
        value = self.text("name", "")
        if not value and "name" not in self.errors:
            self.fail("name", specification_messages.NAME_MISSING())
        elif value and not _LABEL.fullmatch(value):
            self.fail("name", _name_message(value))
        return value

    def framework(self) -> str:
        value = self.text("framework", frameworks.COMMAND if self.image else frameworks.NATIVE)
        if value in frameworks.TABLE:
            return value
        names = _or(frameworks.NAMES)
        self.fail("framework", specification_messages.FRAMEWORK_UNKNOWN(value=quantities.shown(value), names=names))
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
                specification_messages.IMAGE_NAME_INVALID_2(value=given),
            )
        if self.body.get("framework", frameworks.COMMAND) != frameworks.COMMAND:
            self.fail("framework", specification_messages.IMAGE_NEEDS_COMMAND())
        for brought in ("files", "requirements"):
            if self.body.get(brought):
                self.fail(
                    brought,
                    paragraph(specification_messages.IMAGE_UNCHANGED(), specification_messages.REMOVE_THIS_OR_IMAGE()),
                )
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
            self.fail(
                "timeout", specification_messages.TIME_OUT_OF_RANGE(least="1s", most=quantities.span_text(LONGEST))
            )
            return default
        return length

    def elastic(self, trainer: RoleSpec) -> bool:
        """Return whether the job is elastic; by default, if it may have more trainers than it starts with."""
        value = self.body.get("elastic")
        if value is None:
            return trainer.max > trainer.replicas
        if not isinstance(value, bool):
            self.fail("elastic", job_messages.NOT_A_BOOLEAN())
        elif value and trainer.min == trainer.max:
            self.fail("elastic", job_messages.ELASTIC_WITHOUT_RANGE())
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
            self.fail("requirements", specification_messages.REQUIREMENTS_NOT_A_LIST())
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
            self.fail("env", specification_messages.VALUES_TOO_LONG(size=ENVIRONMENT_LIMIT // 1024))
        return env

    # --- Roles ---
    def role(self, roles: Mapping[Any, Any], role: str, fewest: int, usual: int) -> RoleSpec:
        path = f"roles.{role}"
        body = self.mapping(path, roles, role)
        self.known_keys(f"{path}.", body, self.ROLES[role])
        replicas = self.integer(f"{path}.replicas", body, "replicas", usual, fewest, MOST_REPLICAS)
        if role == contract.PSERVER and replicas and not self.row.may_have_servers:
            self.fail(f"{path}.replicas", specification_messages.NO_PSERVERS_2(framework=self.row.name))
        elif role == contract.PSERVER and replicas and self.image:
            self.fail(f"{path}.replicas", specification_messages.IMAGE_NO_PSERVERS())
        elif role == contract.PSERVER and replicas and self.row.servers_need_data and not self.body.get("dataset"):
            self.fail(f"{path}.replicas", specification_messages.PSERVERS_NEED_DATASET(framework=self.row.name))
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
                self.fail(f"{path}.{key}", specification_messages.NO_MASTER(framework=self.row.name))
        return masters, cpu

    def bounds(self, path: str, body: Mapping[Any, Any], replicas: int) -> tuple[int, int]:
        if self.together:
            return self.fixed(path, body, replicas)
        least = self.integer(f"{path}.min", body, "min", 1, 1, MOST_REPLICAS)
        most = self.integer(f"{path}.max", body, "max", max(replicas, least), 1, MOST_REPLICAS)
        if f"{path}.replicas" in self.errors:
            return least, most
        if least > replicas:
            self.fail(f"{path}.min", specification_messages.MIN_ABOVE_REPLICAS(least=least, count=replicas))
        if most < replicas:
            self.fail(f"{path}.max", specification_messages.MAX_BELOW_REPLICAS(most=most, count=replicas))
        return least, most

    def fixed(self, path: str, body: Mapping[Any, Any], replicas: int) -> tuple[int, int]:
        for key in ("min", "max"):
            if self.integer(f"{path}.{key}", body, key, replicas, 1, MOST_REPLICAS) != replicas:
                self.fail(
                    f"{path}.{key}",
                    paragraph(
                        specification_messages.TRAINERS_FIXED(framework=self.row.name),
                        specification_messages.REMOVE_OR_SET(number=replicas),
                    ),
                )
        return replicas, replicas

    def cpu(self, path: str, body: Mapping[Any, Any], usual: float = 1.0) -> float:
        amount = self.quantity(f"{path}.cpu", body, "cpu", quantities.cores, usual)
        if not 0.01 <= amount <= 1024:
            self.fail(f"{path}.cpu", specification_messages.CPU_OUT_OF_RANGE())
            return 1.0
        return amount

    def memory(self, path: str, body: Mapping[Any, Any]) -> int:
        amount = self.quantity(f"{path}.memory", body, "memory", quantities.memory, DEFAULT_MEMORY)
        if amount < SMALLEST_MEMORY:
            least = quantities.memory_text(SMALLEST_MEMORY)
            self.fail(f"{path}.memory", specification_messages.MEMORY_TOO_SMALL(least=least))
            return DEFAULT_MEMORY
        return amount

    # --- Files ---
    def files(self) -> dict[str, str]:
        given = self.mapping("files", self.body, "files")
        if self.image:
            return {}
        if not given:
            self.fail("files", specification_messages.FILES_MISSING())
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
            self.fail("files", specification_messages.FILES_TOO_LARGE(size=f"{total:,}", most=f"{FILES_LIMIT:,}"))
        for path in files:
            folder = next((str(up) for up in PurePosixPath(path).parents if str(up) in files), None)
            if folder:
                self.fail(f"files.{path}", specification_messages.FOLDER_IS_FILE(folder=folder))

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
            self.fail("entrypoint", specification_messages.COMMAND_INVALID())
            return ""
        return shlex.join(words)

    def entrypoint(self, files: Mapping[str, str]) -> str:
        if self.row.name == frameworks.COMMAND:
            return self.command()
        value = self.text("entrypoint", "train.py")
        given = self.body.get("files")
        if not value.endswith(".py"):
            self.fail("entrypoint", specification_messages.NOT_PYTHON(value=quantities.shown(value)))
        elif isinstance(given, Mapping) and given and value not in given:
            names = ", ".join(sorted(path for path in files if path.endswith(".py"))[:5]) or "no Python file"
            self.fail(
                "entrypoint", specification_messages.ENTRYPOINT_MISSING(value=quantities.shown(value), names=names)
            )
        return value


# --- Problems of single values ---------------------------------------------------------------------------------------
def _name_message(value: str) -> str:
    proposal = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:63].strip("-") or "digits"
    return specification_messages.NAME_INVALID(value=quantities.shown(value), proposal=proposal)


def _requirement_problem(line: str) -> str:
    if len(line) > 300 or _UNPRINTABLE.search(line):
        return specification_messages.REQUIREMENT_TOO_LONG()
    if line.lstrip().startswith("-"):
        return specification_messages.PIP_OPTION()
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return specification_messages.REQUIREMENT_INVALID(value=quantities.shown(line))
    if requirement.url:
        return specification_messages.REQUIREMENT_ADDRESS()
    return ""


def _variable_problem(name: object, value: object) -> str:
    if not isinstance(name, str) or not _ENVIRONMENT_NAME.fullmatch(name):
        return specification_messages.VARIABLE_NAME_INVALID()
    if name.upper().startswith(_RESERVED):
        return specification_messages.VARIABLE_NAME_RESERVED(prefix=_RESERVED)
    if not isinstance(value, str):
        return specification_messages.VALUE_NOT_TEXT(value=value)
    if "\x00" in value or not _encodable(value):
        return specification_messages.VALUE_CHARACTER_INVALID()
    return specification_messages.VALUE_TOO_LONG(size=32) if len(value) > 32 * 1024 else ""


def _path_problem(path: object) -> str:
    if not isinstance(path, str) or not path or len(path) > 200 or _UNPRINTABLE.search(path) or not _encodable(path):
        return specification_messages.FILE_NAME_INVALID()
    if path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        return specification_messages.PATH_INVALID()
    if any(len(part.encode()) > 200 for part in path.split("/")):
        return specification_messages.PATH_PART_TOO_LONG()
    top = path.split("/")[0]
    if top in ("runtime.py", "runtime"):
        return specification_messages.NAME_HIDES_RUNTIME(name=top)
    return ""


def _text_problem(text: object) -> str:
    if not isinstance(text, str):
        return specification_messages.CONTENT_NOT_TEXT()
    if not _encodable(text):
        return specification_messages.CONTENT_NOT_UTF8()
    size = len(text.encode())
    if size > FILE_LIMIT:
        return specification_messages.FILE_TOO_LARGE(size=f"{size:,}", most=f"{FILE_LIMIT:,}")
    return ""


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _or(words: tuple[str, ...]) -> str:
    return " or ".join(words)
