"""Rules of the fields of a job specification. Pure.

A rule takes the document, the path and the value that the field's kind has read, or the default. It reports problems
to the document and returns the value to use.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from jobs.frameworks import definitions as frameworks
from jobs.messages import holds as hold_messages
from jobs.messages import jobs as job_messages
from jobs.messages import specification as messages
from jobs.spec import parameters, quantities, stall_actions
from jobs.spec.document import Document
from jobs.spec.kinds import read_integer, read_text
from jobs.spec.syntax_check import syntax_problems
from portal.common.errors import NotFound
from runtime import contract
from runtime.messages import paragraph

# Cores of a master: it only dispatches ranges of records.
MASTER_CPU = 0.5
DEFAULT_MEMORY = 512 * 1024**2
DEFAULT_ENTRYPOINT = "train.py"
DEFAULT_TIMEOUT = timedelta(hours=1)
DEFAULT_MODE = "sync"

FILE_LIMIT = 1024**2  # bytes of one file
FILES_LIMIT = 5 * 1024**2  # bytes of all files
ENVIRONMENT_LIMIT = 64 * 1024  # bytes of all variables, which reach the agent as one
SMALLEST_MEMORY = 128 * 1024**2  # an interpreter with NumPy does not start in less
MOST_REPLICAS = 256
# One serves, one is on standby.
MOST_MASTERS = 2
MOST_PASSES = 100_000
MOST_RETRIES = 10
LONGEST = timedelta(days=30)
# Processes report at intervals of seconds: a shorter time would say nothing.
LONGEST_HOLD = timedelta(seconds=contract.HOLD_SECONDS_LIMIT)
SHORTEST_STALL = timedelta(seconds=20)
IMAGE_LENGTH = 300

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_RESERVED = "REGATTA_"
# [host[:port]/]path[:tag][@digest]
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    rf"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")


def accept(document: Document, path: str, value: Any) -> Any:
    """Accept every value of the field's kind."""
    return value


# --- The program and its image ---------------------------------------------------------------------------------------
def check_name(document: Document, path: str, value: str) -> str:
    if not value and path not in document.errors:
        document.fail(path, messages.NAME_MISSING())
    elif value and not _LABEL.fullmatch(value):
        document.fail(path, _name_message(value))
    return value


def default_framework(document: Document) -> str:
    return frameworks.COMMAND if document.image else frameworks.NATIVE


def check_framework(document: Document, path: str, value: str) -> str:
    if value in frameworks.NAMES:
        return value
    names = " or ".join(frameworks.NAMES)
    document.fail(path, messages.FRAMEWORK_UNKNOWN(value=quantities.shown(value), names=names))
    return frameworks.NATIVE


def check_image(document: Document, path: str, given: str) -> str:
    """Check the job's own image. It runs without the platform's help, so fields that need it are refused."""
    value = given.strip()
    if not value:
        return ""
    if len(value) > IMAGE_LENGTH or not _IMAGE.fullmatch(value):
        document.fail(path, messages.IMAGE_NAME_INVALID_2(value=quantities.shown(value)))
    if document.has("framework") and document.given("framework") != frameworks.COMMAND:
        document.fail("framework", messages.IMAGE_NEEDS_COMMAND())
    for added in ("files", "requirements"):
        if document.given(added):
            document.fail(added, paragraph(messages.IMAGE_UNCHANGED(), messages.REMOVE_THIS_OR_IMAGE()))
    return value


def check_entrypoint(document: Document, path: str, value: Any) -> str:
    """Read the entrypoint: a program with arguments for the framework command, else one of the Python files."""
    if document.framework.name == frameworks.COMMAND:
        return _command(document, path, value)
    file = document.read(path, read_text, DEFAULT_ENTRYPOINT)
    given = document.given("files")
    if not file.endswith(".py"):
        document.fail(path, messages.NOT_PYTHON(value=quantities.shown(file)))
    elif isinstance(given, Mapping) and given and file not in given:
        files = document.values["files"]
        names = ", ".join(sorted(name for name in files if name.endswith(".py"))[:5]) or "no Python file"
        document.fail(path, messages.ENTRYPOINT_MISSING(value=quantities.shown(file), names=names))
    return str(file)


def _command(document: Document, path: str, value: Any) -> str:
    """Return a program and its arguments as one line, from a list or from a line without special shell syntax."""
    if document.image and not value:
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
        document.fail(path, messages.COMMAND_INVALID())
        return ""
    return shlex.join(words)


# --- Files, packages, variables --------------------------------------------------------------------------------------
def check_files(document: Document, path: str, given: Mapping[Any, Any]) -> dict[str, str]:
    """Return the files that are valid on their own; check their total and their syntax."""
    if document.image:
        return {}
    if not given:
        document.fail(path, messages.FILES_MISSING())
        return {}
    if document.too_many(path, given, "files"):
        return {}
    valid = {name: text for name, text in given.items() if _is_valid_file(document, name, text)}
    _check_files_together(document, valid)
    for name, problem in syntax_problems(valid).items():
        document.fail(f"files.{name}", problem.description)
        document.positions[f"files.{name}"] = {"line": problem.line, "column": problem.column}
    return valid


def _is_valid_file(document: Document, name: object, text: object) -> bool:
    problem = _path_problem(name) or _text_problem(text)
    if problem:
        document.fail(f"files.{quantities.words(name)[:200]}", problem)
    return not problem


def _check_files_together(document: Document, files: Mapping[str, str]) -> None:
    total = sum(len(text.encode()) for text in files.values())
    if total > FILES_LIMIT:
        document.fail("files", messages.FILES_TOO_LARGE(size=f"{total:,}", most=f"{FILES_LIMIT:,}"))
    for name in files:
        folder = next((str(up) for up in PurePosixPath(name).parents if str(up) in files), None)
        if folder:
            document.fail(f"files.{name}", messages.FOLDER_IS_FILE(folder=folder))


def check_requirements(document: Document, path: str, lines: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    if document.too_many(path, lines, "requirements"):
        return ()
    for index, line in enumerate(lines):
        problem = _requirement_problem(line)
        if problem:
            document.fail(f"{path}.{index}", problem)
    return tuple(line.strip() for line in lines)


def check_env(document: Document, path: str, variables: Mapping[Any, Any]) -> dict[str, str]:
    if document.too_many(path, variables, "variables"):
        return {}
    for name, value in variables.items():
        problem = _variable_problem(name, value)
        if problem:
            document.fail(f"{path}.{quantities.words(name)[:80]}", problem)
    env = {name: value for name, value in variables.items() if not _variable_problem(name, value)}
    if len(json.dumps(env)) > ENVIRONMENT_LIMIT:
        document.fail(path, messages.VALUES_TOO_LONG(size=ENVIRONMENT_LIMIT // 1024))
    return env


def check_params(document: Document, path: str, given: Mapping[Any, Any]) -> dict[str, parameters.Value]:
    if document.too_many(path, given, "parameters"):
        return {}
    params = {}
    for name, value in given.items():
        if problem := parameters.problem(name, value):
            document.fail(f"{path}.{quantities.words(name)[:80]}", problem)
        else:
            params[name] = value
    for name, other in parameters.same_variable(params):
        document.fail(f"{path}.{name}", messages.PARAMETER_SAME_VARIABLE(name=other))
    if len(parameters.as_json(params).encode()) > parameters.TOTAL_BYTES:
        document.fail(path, messages.VALUES_TOO_LONG(size=parameters.TOTAL_BYTES // 1024))
    return params


# --- The course of the job -------------------------------------------------------------------------------------------
def check_dataset(document: Document, path: str, value: str) -> str:
    if value:
        try:
            document.find_dataset(value)
        except NotFound as missing:
            document.fail(path, missing.detail)
    return value


def check_mode(document: Document, path: str, given: str) -> str:
    value = given.replace(" ", "")
    try:
        contract.parse_mode(value)
    except ValueError as error:
        document.fail(path, str(error))
        return DEFAULT_MODE
    return value


def check_timeout(document: Document, path: str, value: timedelta) -> timedelta:
    if not timedelta(seconds=1) <= value <= LONGEST:
        document.fail(path, messages.TIME_OUT_OF_RANGE(least="1s", most=quantities.span_text(LONGEST)))
        return DEFAULT_TIMEOUT
    return value


def check_on_stall(document: Document, path: str, value: str) -> str:
    """Refuse the restart of a replica where none can be replaced: the processes find one another only once."""
    servers = document.values[f"roles.{contract.PSERVER}.replicas"]
    if value == stall_actions.RESTART and frameworks.meets_once(document.framework.name, servers):
        document.fail(path, messages.STALL_RESTART_IMPOSSIBLE(framework=document.framework.name))
    return value


def check_stall_timeout(document: Document, path: str, value: timedelta | None) -> timedelta | None:
    if value is not None and not SHORTEST_STALL <= value <= LONGEST:
        least, most = quantities.span_text(SHORTEST_STALL), quantities.span_text(LONGEST)
        document.fail(path, messages.TIME_OUT_OF_RANGE(least=least, most=most))
        return None
    return value


def check_hold(document: Document, path: str, value: timedelta | None) -> timedelta | None:
    """Check the time of a hold, which the agent keeps: a job with an image of its own has none."""
    if value is None:
        return None
    if document.image:
        document.fail(path, hold_messages.HOLD_NEEDS_AGENT())
    elif not timedelta(seconds=1) <= value <= LONGEST_HOLD:
        document.fail(path, messages.TIME_OUT_OF_RANGE(least="1s", most=quantities.span_text(LONGEST_HOLD)))
    else:
        return value
    return None


def check_elastic(document: Document, path: str, value: bool | None) -> bool:
    """Return whether the job is elastic; by default, if it may have more trainers than it starts with."""
    replicas, least, most = (document.values[f"roles.{contract.TRAINER}.{key}"] for key in ("replicas", "min", "max"))
    if value is None:
        return bool(most > replicas)
    if value and least == most:
        document.fail(path, job_messages.ELASTIC_WITHOUT_RANGE())
    return value


# --- Roles -----------------------------------------------------------------------------------------------------------
def check_servers(document: Document, path: str, value: Any) -> int:
    """Read the number of parameter servers, whose least and default depend on the framework."""
    row = document.framework
    usual = 0 if document.image else frameworks.usual_servers(row, has_dataset=document.has_dataset)
    replicas: int = document.read(path, lambda given: read_integer(given, row.least_servers, MOST_REPLICAS), usual)
    if replicas and not row.may_have_servers:
        document.fail(path, messages.NO_PSERVERS_2(framework=row.name))
    elif replicas and document.image:
        document.fail(path, messages.IMAGE_NO_PSERVERS())
    elif replicas and row.servers_need_data and not document.has_dataset:
        document.fail(path, messages.PSERVERS_NEED_DATASET(framework=row.name))
    return replicas


def default_least(document: Document) -> int:
    return int(_trainers(document, "replicas")) if document.together else 1


def check_least(document: Document, path: str, value: int) -> int:
    """Check the fewest trainers where their number is fixed; ``check_most`` compares both bounds otherwise."""
    return _fixed(document, path, value) if document.together else value


def default_most(document: Document) -> int:
    replicas = _trainers(document, "replicas")
    return replicas if document.together else max(replicas, _trainers(document, "min"))


def check_most(document: Document, path: str, value: int) -> int:
    """Check that the initial number of trainers is within the bounds."""
    if document.together:
        return _fixed(document, path, value)
    role = f"roles.{contract.TRAINER}"
    if f"{role}.replicas" in document.errors:
        return value
    replicas, least = _trainers(document, "replicas"), _trainers(document, "min")
    if least > replicas:
        document.fail(f"{role}.min", messages.MIN_ABOVE_REPLICAS(least=least, count=replicas))
    if value < replicas:
        document.fail(path, messages.MAX_BELOW_REPLICAS(most=value, count=replicas))
    return value


def _trainers(document: Document, key: str) -> int:
    return int(document.values[f"roles.{contract.TRAINER}.{key}"])


def _fixed(document: Document, path: str, value: int) -> int:
    replicas = _trainers(document, "replicas")
    if value != replicas:
        fixed = messages.TRAINERS_FIXED(framework=document.framework.name)
        document.fail(path, paragraph(fixed, messages.REMOVE_OR_SET(number=replicas)))
    return replicas


def check_cpu(document: Document, path: str, value: float) -> float:
    if not 0.01 <= value <= 1024:
        document.fail(path, messages.CPU_OUT_OF_RANGE())
        return 1.0
    return value


def check_memory(document: Document, path: str, value: int) -> int:
    if value < SMALLEST_MEMORY:
        least = quantities.memory_text(SMALLEST_MEMORY)
        document.fail(path, messages.MEMORY_TOO_SMALL(least=least))
        return DEFAULT_MEMORY
    return value


def check_master_cpu(document: Document, path: str, value: float) -> float:
    """Check the cores of a master, then whether the job has one: neither of its fields may be given otherwise."""
    cpu = check_cpu(document, path, value)
    replicas = f"roles.{contract.MASTER}.replicas"
    for field, given in ((replicas, document.values[replicas] > 1), (path, document.has(path))):
        if given and document.together:
            document.fail(field, messages.NO_MASTER(framework=document.framework.name))
    return cpu


# --- Problems of single values ---------------------------------------------------------------------------------------
def _name_message(value: str) -> str:
    proposal = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:63].strip("-") or "digits"
    return messages.NAME_INVALID(value=quantities.shown(value), proposal=proposal)


def _requirement_problem(line: str) -> str:
    if len(line) > 300 or _UNPRINTABLE.search(line):
        return messages.REQUIREMENT_TOO_LONG()
    if line.lstrip().startswith("-"):
        return messages.PIP_OPTION()
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return messages.REQUIREMENT_INVALID(value=quantities.shown(line))
    if requirement.url:
        return messages.REQUIREMENT_ADDRESS()
    return ""


def _variable_problem(name: object, value: object) -> str:
    if not isinstance(name, str) or not _ENVIRONMENT_NAME.fullmatch(name):
        return messages.VARIABLE_NAME_INVALID()
    if name.upper().startswith(_RESERVED):
        return messages.VARIABLE_NAME_RESERVED(prefix=_RESERVED)
    if not isinstance(value, str):
        return messages.VALUE_NOT_TEXT(value=value)
    if "\x00" in value or not _encodable(value):
        return messages.VALUE_CHARACTER_INVALID()
    return messages.VALUE_TOO_LONG(size=32) if len(value) > 32 * 1024 else ""


def _path_problem(path: object) -> str:
    if not isinstance(path, str) or not path or len(path) > 200 or _UNPRINTABLE.search(path) or not _encodable(path):
        return messages.FILE_NAME_INVALID()
    if path.startswith("/") or "\\" in path or any(part in ("", ".", "..") for part in path.split("/")):
        return messages.PATH_INVALID()
    if any(len(part.encode()) > 200 for part in path.split("/")):
        return messages.PATH_PART_TOO_LONG()
    top = path.split("/")[0]
    if top in ("runtime.py", "runtime"):
        return messages.NAME_HIDES_RUNTIME(name=top)
    return ""


def _text_problem(text: object) -> str:
    if not isinstance(text, str):
        return messages.CONTENT_NOT_TEXT()
    if not _encodable(text):
        return messages.CONTENT_NOT_UTF8()
    size = len(text.encode())
    if size > FILE_LIMIT:
        return messages.FILE_TOO_LARGE(size=f"{size:,}", most=f"{FILE_LIMIT:,}")
    return ""


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
