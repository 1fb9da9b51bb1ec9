"""The platform's messages in the reader's language."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.utils import translation

from jobs.lifecycle import wording
from jobs.messages import cluster
from jobs.messages import jobs as messages
from portal.common.messages import localized, localized_errors, localized_job
from quota import messages as quota_messages
from runtime.messages import Message, paragraph, registered
from runtime.messages import training as training_messages
from runtime.messages.composition import enumerated, prefixed, with_full_stop


@pytest.fixture
def chinese() -> Iterator[None]:
    with translation.override("zh-hans"):
        yield


def is_translated(message: str) -> bool:
    """Return whether no part stays in English: three English words in a row."""
    return not re.search(r"[A-Za-z]{3,} [A-Za-z]{2,} [A-Za-z]{2,}", localized(message))


def test_in_english_a_message_is_its_text() -> None:
    with translation.override("en"):
        assert localized(messages.COMPLETED()) == messages.COMPLETED()


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (messages.COMPLETED(), "训练已完成。"),
        (messages.TRAINING(trainers=wording.trainers(2)), "正在使用 2 个训练器训练。"),
        (
            paragraph(messages.WAITING_FOR_QUOTA(), quota_messages.JOBS_BEFORE(count=3)),
            "等待配额。队列中前面还有 3 个任务。",
        ),
        (
            messages.ENDING(
                replica="trainer-0", ending=training_messages.EXITED_WITH_ERROR(code=1, error="NameError: a")
            ),
            "trainer-0 已退出，退出码 1：NameError: a",
        ),
        (with_full_stop(prefixed("trainer-0", cluster.IMAGE_NOT_ON_NODE(why="ErrImageNeverPull"))),
         "trainer-0：节点上没有此镜像：ErrImageNeverPull。"),
        (enumerated(["trainer-0", "trainer-1", "trainer-2"]), "trainer-0、trainer-1 和 trainer-2"),
        ("KeyError: 7", "KeyError: 7"),
        ("", ""),
    ],
)  # fmt: skip
def test_in_chinese(message: str, expected: str) -> None:
    assert localized(message) == expected


@pytest.mark.usefixtures("chinese")
def test_a_stored_message_of_a_code_that_is_no_longer_known_is_its_text() -> None:
    assert localized(Message("Gone by the way.", "jobs.of_an_older_release", {})) == "Gone by the way."


@pytest.mark.invariant("Every message for people has a Chinese translation.")
@pytest.mark.usefixtures("chinese")
def test_each_message_is_translated_to_chinese() -> None:
    untranslated = {
        code: template.text
        for code, template in registered().items()
        if not is_translated(template(**dict.fromkeys(template.places, 7)))
    }
    assert untranslated == {}


@pytest.mark.usefixtures("chinese")
def test_the_messages_of_fields_and_of_a_job_are_translated() -> None:
    complete = messages.COMPLETED()
    assert localized_errors({"name": [complete]}) == {"name": ["训练已完成。"]}
    document = localized_job(
        {"why": complete, "sizing": complete, "replicas": [{"name": "trainer-0", "why": complete}]}
    )
    assert document == {
        "why": "训练已完成。",
        "sizing": "训练已完成。",
        "replicas": [{"name": "trainer-0", "why": "训练已完成。"}],
    }
