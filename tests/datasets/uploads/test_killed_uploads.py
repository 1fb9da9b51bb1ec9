"""Uploads that are killed at any place: they resume, and end with the bytes that were sent."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from datasets.errors import Incomplete
from datasets.uploads import completion, parts, staging, upload_verification
from tests.datasets.conftest import CONTENT, Uploader, sha, stored

pytestmark = pytest.mark.django_db


class Killed(BaseException):
    """Simulated kill of the process."""


def killed_at(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, *, after: bool) -> None:
    """Kill the process at the next call of a function, before or after its work."""
    works = getattr(module, name)

    def dies(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(module, name, works)
        if after:
            works(*arguments, **named)
        raise Killed

    monkeypatch.setattr(module, name, dies)


STEPS = [
    (staging, "_open"),
    (staging, "_write"),
    (staging, "_sync_directory"),
    (parts, "_record_part"),
    (completion, "create_blob"),
    (completion, "_store"),
    (completion, "settle_blob"),
]


@pytest.mark.invariant("A killed upload continues, and ends with the bytes that were sent.")
def test_fifty_kills_at_random_places_end_bit_equal(uploader: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each kill the sender queries what is there and sends the rest."""
    dice = random.Random(5)
    content = dice.randbytes(25)
    kills = 0
    for index in range(100):
        path = f"file-{index}"
        file = uploader.announce(path, content)
        while not file.complete:
            file = uploader.announce(path, content)
            module, name = dice.choice(STEPS)
            if kills < 50 and dice.random() < 0.8:
                killed_at(monkeypatch, module, name, after=dice.random() < 0.5)
            try:
                for number in dice.sample(range(3), 3):
                    if number not in parts.numbers_of(file):
                        uploader.part(file, number, content[number * 10 : number * 10 + 10])
                file = uploader.complete(file, content)
            except Killed:
                kills += 1
        assert stored(file) == content
        if kills >= 50:
            break
    assert kills >= 50


def test_a_kill_loses_no_more_than_the_part_in_flight(uploader: Uploader, monkeypatch: pytest.MonkeyPatch) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.part(file, 0, CONTENT[:10])
    uploader.part(file, 1, CONTENT[10:20])
    killed_at(monkeypatch, staging, "_write", after=True)
    with pytest.raises(Killed):
        uploader.part(file, 2, CONTENT[20:30])
    assert parts.numbers_of(uploader.announce("a", CONTENT)) == [0, 1]


def test_a_large_file_that_is_read_for_long_is_requested_again(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    read = upload_verification.read_part
    monkeypatch.setattr(upload_verification, "read_part", lambda *given: held.wait() and read(*given))
    file = uploader.announce("a", CONTENT)
    uploader.parts(file, CONTENT)
    first = completion.complete(
        actor=uploader.actor, place=uploader.place, file_id=file.pk, sha256=sha(CONTENT), seconds=0.01
    )
    assert not first.file.complete and first.checked == 0
    held.set()
    assert stored(uploader.complete(file, CONTENT)) == CONTENT


@pytest.mark.invariant(
    "The checksum of a file is that of the bytes on disk, even if a part is replaced after it was read."
)
def test_a_part_that_was_forgotten_and_never_replaced_is_asked_for(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = uploader.announce("a", CONTENT)
    uploader.parts(file, CONTENT)
    killed_at(monkeypatch, staging, "_copy", after=True)
    with pytest.raises(Killed):
        uploader.part(file, 1, b"!" * 10)
    with pytest.raises(Incomplete) as error:
        uploader.complete(file, CONTENT)
    assert error.value.extra["missing"] == [1]
    uploader.part(file, 1, CONTENT[10:20])
    assert stored(uploader.complete(file, CONTENT)) == CONTENT
