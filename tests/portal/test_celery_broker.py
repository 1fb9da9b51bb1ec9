"""The file-system broker as a reader in another thread or process sees it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection

from portal.celery_broker import MOST_MESSAGES, Channel

MESSAGES = 300
TEXT = "x" * 200_000


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Channel]:
    for folder in ("messages", "control"):
        (tmp_path / folder).mkdir()
    options = {
        "data_folder_in": str(tmp_path / "messages"),
        "data_folder_out": str(tmp_path / "messages"),
        "control_folder": str(tmp_path / "control"),
    }
    with Connection("", transport="portal.celery_broker:Transport", transport_options=options) as connection:
        yield connection.channel()


def test_a_message_is_read_complete_or_not_at_all(channel: Channel, tmp_path: Path) -> None:
    def put() -> None:
        for number in range(MESSAGES):
            channel._put("celery", {"number": number, "text": TEXT})

    writer = threading.Thread(target=put)
    writer.start()
    seen: set[int] = set()
    while writer.is_alive() or len(seen) < MESSAGES:
        for path in (tmp_path / "messages").glob("*.celery.msg"):
            seen.add(json.loads(path.read_text())["number"])
            path.unlink()
    assert seen == set(range(MESSAGES))


def test_every_message_comes_back(channel: Channel) -> None:
    for number in range(5):
        channel._put("celery", number)
    assert sorted(channel._get("celery") for _ in range(5)) == list(range(5))


def test_without_a_worker_the_number_of_messages_is_bounded(channel: Channel, tmp_path: Path) -> None:
    for number in range(MOST_MESSAGES + 10):
        channel._put("celery", number)
    assert len(list((tmp_path / "messages").iterdir())) == MOST_MESSAGES
    channel._get("celery")
    channel._put("celery", "after one was read")
    assert len(list((tmp_path / "messages").iterdir())) == MOST_MESSAGES


def test_queues_bound_at_once_are_all_kept(channel: Channel) -> None:
    names = [f"queue-{number}" for number in range(20)]
    binders = [threading.Thread(target=channel._queue_bind, args=("jobs", "", "", name)) for name in names]
    for binder in binders:
        binder.start()
    for binder in binders:
        binder.join()
    assert sorted(row.queue for row in channel.get_table("jobs")) == sorted(names)


def test_a_queue_bound_twice_is_kept_once(channel: Channel) -> None:
    for _ in range(2):
        channel._queue_bind("jobs", "", "", "celery")
    assert [row.queue for row in channel.get_table("jobs")] == ["celery"]
