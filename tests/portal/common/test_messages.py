"""The platform's messages in the reader's language, and the agreement of the table with the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import translation

from portal.common.messages import MESSAGES, localized

ROOT = Path(__file__).resolve().parents[3]
TABLE = ROOT / "portal" / "common" / "messages.py"
PACKAGES = ("jobs", "rbac", "quota", "datasets", "portal", "runtime")


@pytest.fixture
def chinese() -> Iterator[None]:
    with translation.override("zh-hans"):
        yield


def modules(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield every module of the packages, by its path."""
    for path in (path for package in packages for path in sorted((ROOT / package).rglob("*.py")) if path != TABLE):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def texts_of_the_code() -> str:
    """Yield every constant text of the platform; those of an f-string one by one."""
    nodes = (node for _, tree in modules(*PACKAGES) for node in ast.walk(tree))
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


# --- Every message of jobs, runtime and datasets for a person --------------------------------------------------------
# Messages between programs, the output of a command on its own terminal, and reports of internal errors.
NOT_TO_READERS = (
    "jobs/backends/factory.py",
    "jobs/ingest/payloads.py",
    "jobs/live/consumers.py",
    "jobs/elastic/__main__.py",  # a command on a terminal, with its input and output
    "jobs/elastic/simulation/report.py",
    "jobs/elastic/simulation/traces.py",
    "jobs/ingest/views.py",
    "jobs/operator/",  # output of its controller for ``kubectl``
    "jobs/lifecycle/state_machine.py",
    "jobs/migrations/",
    "jobs/streams/entries.py",
    "jobs/streams/block_codec.py",
    "jobs/live/subscriptions.py",
    "runtime/__main__.py",
    "runtime/agent/__main__.py",
    "runtime/checkpoint/cli.py",
    "runtime/data/cli.py",
    "runtime/data/recordio/cli.py",
    "runtime/checkpoint/report.py",
    "runtime/gateway/",
    "runtime/launch.py",
    "runtime/protocol/",
)
# Composed by the code from parts, or sent to a program: the code's text, and the resulting message for a reader.
COMPOSED = {
    "Starting {}.": "Starting the master, 1 parameter server and 2 trainers.",
    "Training {}with {}; {}.": "Training with 1 of 2 trainers; trainer-1 is joining.",
    "After {} {} had not registered.": "After 30 seconds trainer-1 had not registered.",
    "{} cannot be a name. {}, such as {}.": (
        '"A b" cannot be a name. Write up to 63 small letters, digits and hyphens, with a letter or digit at both '
        "ends, such as a-b."
    ),
    "{} is no pip requirement.": (
        '"-" is no pip requirement. Write a name and perhaps a version, such as pandas==2.3.3.'
    ),
    "{} Write a name and perhaps a version, such as pandas==2.3.3.": (
        '"-" is no pip requirement. Write a name and perhaps a version, such as pandas==2.3.3.'
    ),
    "These are {} {}; at most {} are taken.": "These are 300 requirements; at most 200 are taken.",
    "R{} of {} ({}) is left out from now on: {} could not do it.": (
        "Record 812 (train-0.recordio) of public/digits (task 3, chunk 0) is left out from now on: trainer-0 and "
        "trainer-1 could not do it."
    ),
    "Pass {} of {} done in {} s: {}{}, {}{}.": "Pass 2 of 5 done in 3.1 s: 1,500 records, 480 records/s, 2 trainers.",
    "{} left{}.": "trainer-1 left, its task 7 goes back.",
    "All {} passes are done{}.": (
        "All 5 passes are done, without what no trainer could do: record 7 (train-0.recordio) of public/digits."
    ),
    "{} This takes effect with the next attempt.": (
        "Scaled from 1 to 2 parameter servers by ada. This takes effect with the next attempt."
    ),
    "{} Its optimiser goes on from the checkpoint of version {}.": (
        "Parameter server 0 is back after 1.2 s at version 7, with trainer-1's values. "
        "Its optimiser goes on from the checkpoint of version 5."
    ),
    "{} The rows of its tables are those of the checkpoint of version {}.": (
        "Parameter server 0 is back after 1.2 s at version 7, with trainer-1's values. "
        "The rows of its tables are those of the checkpoint of version 5."
    ),
    "{} No process has taken its place for {} s.": "No process has taken its place for 90 s.",
    # An error of an agent or a programmer: no reader sees it.
    "This attempt has no replica {}.": "",
    "The content has another hash; it was cut or changed on its way.": "",
    "{} is not set: no agent runs beside this process.": "",
    # A manifest that contradicts itself, which the platform writes.
    "{} has a digest that is none.": "",
    "{} counts other records than its chunks.": "",
    "{} is not spelled as it should be.": "",
    "{} has a chunk at {} that overlaps another or leaves the file.": "",
    "This manifest is of format {}; known is {}.": "",
    "This is no manifest ({}).": "",
}
_MESSAGE = re.compile(r"([A-Z{]|etcd ).* .*[.?]", re.DOTALL)
_STATEMENT_OF_SQL = re.compile(r"(SELECT|INSERT|UPDATE|DELETE) ")


def messages_of_the_code() -> Iterator[tuple[str, str]]:
    """Yield the texts that look like messages in jobs, runtime and datasets: the place, and the text with {} for
    values."""
    for path, tree in modules("jobs", "runtime", "datasets"):
        if path.startswith(NOT_TO_READERS):
            continue
        passed_over = set(silent_nodes(tree))
        for node in ast.walk(tree):
            text = template(node)
            if node not in passed_over and _MESSAGE.fullmatch(text) and not _STATEMENT_OF_SQL.match(text):
                yield f"{path}:{getattr(node, 'lineno', 0)}", text


def silent_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Return docstrings, log messages, help texts of the API document, and the pieces of f-strings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        elif is_silent(node):
            yield from ast.walk(node)
        elif isinstance(node, ast.JoinedStr):
            yield from node.values


def is_silent(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).startswith(("log.", "_log.", "logging."))
    return isinstance(node, ast.keyword) and node.arg in ("help_text", "description")


def template(node: ast.AST) -> str:
    """Return a text of the code with {} for every expression in it; empty for a node that is no text."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def is_translated(message: str) -> bool:
    """Return whether no part stays in English: three English words in a row."""
    return not re.search(r"[A-Za-z]{3,} [A-Za-z]{2,} [A-Za-z]{2,}", localized(message))


@pytest.mark.invariant("Every message of jobs, runtime and datasets has a Chinese translation.")
@pytest.mark.usefixtures("chinese")
def test_messages_of_jobs_runtime_and_datasets_are_translated_to_chinese() -> None:
    """A message that fails here belongs in ``portal/common/messages/``, with its translation in ``portal/locale``."""
    translatable = [(place, COMPOSED.get(text, text.replace("{}", "7"))) for place, text in messages_of_the_code()]
    assert [(place, message) for place, message in translatable if not is_translated(message)] == []


def test_composed_messages_of_the_code_exist() -> None:
    assert COMPOSED.keys() - {text for _, text in messages_of_the_code()} == set()


def test_the_code_still_holds_what_the_table_translates() -> None:
    translatable = texts_of_the_code()
    pieces = {piece for message in MESSAGES for piece in re.split(r"\{\w+\}", message)}
    # A long piece indicates a message that was changed; the code composes a short one (", such as ").
    assert sorted(piece for piece in pieces if len(piece) > 30 and longest_part(piece) not in translatable) == []


def longest_part(piece: str) -> str:
    """Return the text without what the code adds at either end, such as the noun of a number."""
    return max(re.split(r"; |[:,.] |\.$", piece), key=len)


def test_in_english_nothing_changes() -> None:
    with translation.override("en"):
        assert localized("Training with 2 trainers.") == "Training with 2 trainers."


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Training is complete.", "训练已完成。"),
        ("Training with 2 trainers.", "正在用 2 个训练器训练。"),
        (
            "Waiting for quota. Needs 3 cpu; 1 of 2 are free in `vision`: 1 are held by running jobs.",
            "正在等待配额。需要 3 个 CPU；“vision”的 2 中还有 1 可用：运行中的任务占用了 1。",
        ),
        (
            "trainer-0 exited with code 1: NameError: in a.py line 3. Trying again as attempt 2; 1 more try after it.",
            "trainer-0 已退出，退出码 1：NameError:（a.py 第 3 行）。将作为第 2 次尝试重新运行；此后还可再试 1 次。",
        ),
        ("After 30 seconds trainer-1 had not registered.", "过了 30 秒，trainer-1 仍未注册。"),
        (
            'name: "A b" is no framework. This installation runs native.',
            'name: "A b" 不是可用的框架。本系统可运行 native。',
        ),
        (
            "Training goes on with 1 of 2 trainers; master-0 was ended by SIGKILL and is started again; x is joining.",
            "2 个训练器中还有 1 个在继续训练；master-0 被 SIGKILL 终止，正在重新启动；x 正在加入。",
        ),
        (
            "Training with 1 of 3 trainers; trainer-1 and trainer-2 are joining.",
            "3 个训练器中有 1 个在训练；trainer-1 和 trainer-2 正在加入。",
        ),
        ("Scaled from 1 to 3 trainers by ada.", "ada 将数量由 1 个调整为 3 个训练器。"),
        (
            "trainer-1 was ended by signal 9; started again (1 of 3).",
            "trainer-1 被 信号 9 终止；已重新启动（第 1 次，最多 3 次）。",
        ),
        (
            "The checkpoint of version 7 failed: no space left on device. Training goes on.",
            "版本 7 的检查点未能写入：no space left on device。训练继续进行。",
        ),
        (
            "Shrinks from 8 to 1 trainer: room for jobs that have less than their share.",
            "由 8 个减少到 1 个训练器：为 所得少于应有份额的任务 腾出资源。",
        ),
        ("Nobody wrote this message.", "Nobody wrote this message."),
        ("", ""),
    ],
)
def test_in_chinese(message: str, expected: str) -> None:
    assert localized(message) == expected


@pytest.mark.usefixtures("chinese")
def test_translating_the_output_of_a_script_is_fast() -> None:
    hostile = "exited with code 1: " + "is gone: ran. " * 200
    assert localized(hostile).startswith("已退出，退出码 1：")
