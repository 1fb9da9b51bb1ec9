"""The platform's own sentences in the reader's language, and that the table says what the code says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import translation

from portal.common.sentences import SENTENCES, told

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "portal" / "common" / "sentences.py"
ROOMS = ("jobs", "rbac", "quota", "datasets", "portal", "runtime")


@pytest.fixture
def chinese() -> Iterator[None]:
    with translation.override("zh-hans"):
        yield


def texts_of_the_code() -> str:
    """Every constant text of the platform; those of an f-string one by one."""
    texts = []
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path != TABLE):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts += [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    return "\n".join(texts)


def test_the_code_still_says_what_the_table_translates() -> None:
    said = texts_of_the_code()
    pieces = {piece for sentence in SENTENCES for piece in re.split(r"\{\w+\}", sentence)}
    # A long piece shows a sentence that was changed; a short one (", such as ") is put together by the code.
    assert sorted(piece for piece in pieces if len(piece) > 30 and longest_part(piece) not in said) == []


def longest_part(piece: str) -> str:
    """Without what the code adds at either end, such as the noun of a number."""
    return max(re.split(r"; |[:,.] |\.$", piece), key=len)


def test_in_english_nothing_changes() -> None:
    with translation.override("en"):
        assert told("Training with 2 trainers.") == "Training with 2 trainers."


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Training is complete.", "训练已完成。"),
        ("Training with 2 trainers.", "正在用 2 个训练器训练。"),
        (
            "Waiting for quota. Needs 3 cpu; 1 of 2 are free in `vision`: 1 are held by running jobs.",
            "正在等待配额。需要 3 个 CPU；“vision”的 2 中还有 1 可用：运行中的作业占用了 1。",
        ),
        (
            "trainer-0 exited with code 1: NameError: in a.py line 3. Trying again as attempt 2; 1 more try after it.",
            "trainer-0 已退出，退出码 1：NameError: in a.py line 3。将作为第 2 次尝试重新运行；此后还可再试 1 次。",
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
        ("Scaled from 1 to 3 trainers by ada.", "ada 将训练器由 1 个调整为 3 个训练器。"),
        (
            "trainer-1 was ended by signal 9; started again (1 of 3).",
            "trainer-1 被 信号 9 终止；已重新启动（第 1 次，最多 3 次）。",
        ),
        (
            "The checkpoint of version 7 failed: no space left on device. Training goes on.",
            "版本 7 的检查点未能写入：no space left on device。训练继续进行。",
        ),
        ("Nobody wrote this sentence.", "Nobody wrote this sentence."),
        ("", ""),
    ],
)
def test_in_chinese(sentence: str, expected: str) -> None:
    assert told(sentence) == expected


@pytest.mark.usefixtures("chinese")
def test_what_a_script_printed_is_not_taken_apart_for_long() -> None:
    hostile = "exited with code 1: " + "is gone: ran. " * 200
    assert told(hostile).startswith("已退出，退出码 1：")
