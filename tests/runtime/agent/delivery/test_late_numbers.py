"""Sender of a start that began without the numbers of earlier starts: entries wait until the portal has given them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from runtime import contract
from runtime.agent.delivery.ingest_client import Answer, Failed, Ingest, Replaced, Taken
from runtime.agent.delivery.shipping import Sender
from runtime.agent.delivery.spool import LOGS

_LISTS = {"logs": "lines", "metrics": "points", "events": "events"}
EARLIER = ["one", "two"]


class HesitantIngest:
    """Portal that refuses a start with ``refusal`` until it has adopted it, ``refusals`` calls later."""

    def __init__(self, refusals: int, refusal: Answer | None = None) -> None:
        self.refusals, self.refusal = refusals, refusal or Failed(503, "start_not_adopted")
        self.entries: dict[str, list[Any]] = defaultdict(list, logs=list(EARLIER))
        self.calls: list[str] = []
        self.starts: set[Any] = set()

    def post_json(self, call: str, body: bytes) -> Answer:
        message = json.loads(body)
        self.calls.append(call)
        self.starts.add(message.get("start_number"))
        if self.refusals:
            self.refusals -= 1
            return self.refusal
        if call == "begin":
            return Taken({kind: len(self.entries[kind]) for kind in _LISTS})
        if call not in _LISTS:
            return Taken({})
        known = self.entries[call]
        assert message["first"] == len(known) + 1
        known += [entry[2] for entry in message[_LISTS[call]]]
        return Taken({"last": len(known)})

    def close(self) -> None:
        pass


@pytest.fixture
def sender(tmp_path: Path) -> Callable[..., Sender]:
    def make(ingest: HesitantIngest, numbers: str | None = "null", replaced: Callable[[str], None] = print) -> Sender:
        if numbers is not None:
            (tmp_path / contract.NUMBERS_FILE).write_text(numbers)
        (tmp_path / "output").mkdir(exist_ok=True)
        return Sender(cast(Ingest, ingest), "trainer-0", 2, tmp_path, replaced)

    return make


def line(text: str) -> str:
    return json.dumps([1.0, "stdout", text])


@pytest.mark.invariant("Output of a start that the cluster made waits until the portal has adopted the start.")
def test_entries_before_the_numbers_follow_those_of_earlier_starts(
    sender: Callable[..., Sender], tmp_path: Path
) -> None:
    ingest = HesitantIngest(refusals=2)
    made = sender(ingest)
    made.append(LOGS, [line("three"), line("four")])
    made.report("starting")
    made.start()
    assert made.finish(tmp_path / "output", {"phase": "exited"})
    assert ingest.entries["logs"] == ["one", "two", "three", "four"]
    assert ingest.calls.index("begin") < ingest.calls.index("logs")


def test_every_call_names_the_start(sender: Callable[..., Sender], tmp_path: Path) -> None:
    ingest = HesitantIngest(refusals=0)
    made = sender(ingest)
    made.append(LOGS, [line("three")])
    made.start()
    made.finish(tmp_path / "output", {"phase": "exited"})
    assert ingest.starts == {2}


def test_known_numbers_are_not_requested_again(sender: Callable[..., Sender], tmp_path: Path) -> None:
    ingest = HesitantIngest(refusals=0)
    made = sender(ingest, json.dumps({"logs": 2, "metrics": 0, "events": 0}))
    made.append(LOGS, [line("three")])
    made.start()
    made.finish(tmp_path / "output", None)
    assert ingest.calls == ["logs"]
    assert ingest.starts == {2}


def test_starts_that_share_a_spool_name_none(sender: Callable[..., Sender], tmp_path: Path) -> None:
    ingest = HesitantIngest(refusals=0)
    ingest.entries.clear()
    made = sender(ingest, None)
    made.append(LOGS, [line("one")])
    made.start()
    made.finish(tmp_path / "output", None)
    assert (ingest.calls, ingest.starts) == (["logs"], {None})


def test_a_start_that_was_superseded_sends_nothing(sender: Callable[..., Sender], tmp_path: Path) -> None:
    ingest, reasons = HesitantIngest(1, Replaced("start 3 runs")), list[str]()
    made = sender(ingest, replaced=reasons.append)
    made.append(LOGS, [line("three")])
    made.start()
    assert not made.finish(tmp_path / "output", None)
    assert (ingest.entries["logs"], reasons) == (EARLIER, ["start 3 runs"])
