"""The sender ends, drops and endlessly repeats nothing because of a wrong answer or a bad entry."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from runtime import contract
from runtime.agent.delivery import artifacts, backoff, shipping
from runtime.agent.delivery.ingest_client import Answer, Failed, Gap, Ingest, Missing, Refused, Replaced, Taken
from runtime.agent.delivery.shipping import Sender
from runtime.agent.delivery.spool import EVENTS, LOGS, METRICS, Batch
from runtime.messages import from_json
from runtime.messages import training as messages

Reply = Callable[[str, Any], Answer]
FIELDS = {LOGS: "lines", METRICS: "points", EVENTS: "events"}
LAST: Mapping[str, Any] = {"replica": "trainer-0", "start_number": 1, "phase": "exited"}


class Scripted:
    """Ingest whose answers come from a function. Records what was sent."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.sent: list[tuple[str, Any]] = []
        self.files: list[bytes] = []

    def post_json(self, call: str, body: bytes) -> Answer:
        message = json.loads(body)
        self.sent.append((call, message))
        return self.reply(call, message)

    def post_file(self, call: str, file: BinaryIO, size: int) -> Answer:
        self.files.append(file.read())
        return self.reply("artifacts", {"sha256": hashlib.sha256(self.files[-1]).hexdigest()})

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def reports(self) -> list[Any]:
        return [message["phase"] for call, message in self.sent if call == "report"]

    def batches(self, kind: str) -> list[tuple[int, list[Any]]]:
        """Return the number of the first entry, and the entries, of all batches that were sent."""
        return [(message["first"], message[FIELDS[kind]]) for call, message in self.sent if call == kind]

    def has(self, kind: str, is_unfit: Callable[[Any], bool] = lambda entry: False) -> list[Any]:
        """Return the entries that a portal has which accepts batches by their numbers, and none with an unfit entry."""
        known: list[Any] = []
        for first, entries in self.batches(kind):
            if not any(map(is_unfit, entries)):
                assert first <= len(known) + 1
                known[first - 1 :] = entries
        return known


def takes(call: str, message: Any) -> Answer:
    """Answer as a portal that accepts everything."""
    if call == "artifacts":
        return Taken(message)
    entries = message.get(FIELDS.get(call, ""))
    return Taken({} if entries is None else {"last": message["first"] + len(entries) - 1})


def first(answers: list[Answer], of: str = "") -> Reply:
    """Reply with these answers, to calls of one kind or to all, and then as a portal does."""
    left = list(answers)
    return lambda call, message: left.pop(0) if left and of in ("", call) else takes(call, message)


class Clock:
    """Clock that advances by a second on each call."""

    def __init__(self) -> None:
        self._ticks = itertools.count()

    def __call__(self) -> float:
        return float(next(self._ticks))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (backoff, shipping):
        monkeypatch.setattr(module, "FIRST_RETRY_SECONDS", 0.0)
        monkeypatch.setattr(module, "LAST_RETRY_SECONDS", 0.0)


class Shop:
    """A sender in its own directory, its ingest, and the reasons with which it was stopped."""

    def __init__(self, directory: Path, reply: Reply) -> None:
        self.output = directory / "output"
        self.output.mkdir(exist_ok=True)
        self.ingest = Scripted(reply)
        self.replaced: list[str] = []
        self.sender = Sender(cast(Ingest, self.ingest), "trainer-0", 1, directory, self.replaced.append, Clock())

    def finish(self) -> bool:
        self.sender.start()
        return self.sender.finish(self.output, LAST)


# --- 404 -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("times", [1, 10, 50])
def test_a_404_of_the_portal_for_a_moment_ends_nothing(tmp_path: Path, times: int) -> None:
    shop = Shop(tmp_path, first([Missing("gone")] * times))
    assert shop.finish()
    assert (shop.replaced, shop.ingest.reports()[-1]) == ([], "exited")


def test_a_404_that_the_portal_sends_for_a_minute_ends_the_attempt(tmp_path: Path) -> None:
    shop = Shop(tmp_path, lambda call, message: Missing("gone"))
    assert not shop.finish()
    assert shop.replaced == ["gone"]
    assert len(shop.ingest.sent) >= 30


def test_a_404_between_other_answers_ends_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path, first(([Missing("gone")] * 30 + [Failed(502, "bad gateway")]) * 10))
    assert shop.finish()
    assert shop.replaced == []


def test_a_stale_attempt_ends_at_once(tmp_path: Path) -> None:
    shop = Shop(tmp_path, lambda call, message: Replaced("newer"))
    assert not shop.finish()
    assert (shop.replaced, len(shop.ingest.sent)) == (["newer"], 1)


# --- Bad entries -----------------------------------------------------------------------------------------------------
def refuses(is_unfit: Callable[[Any], bool], *, names_it: bool, status: int) -> Reply:
    def reply(call: str, message: Any) -> Answer:
        field = FIELDS.get(call, "")
        bad = [place for place, entry in enumerate(message.get(field, ())) if is_unfit(entry)]
        if not bad:
            return takes(call, message)
        return Refused(status, "unfit", {f"{field}.{bad[0]}.1": ["unfit"]} if names_it else {})

    return reply


def points(*steps: int) -> list[str]:
    return [json.dumps([1.0, step, "cost", 0.5]) for step in steps]


@pytest.mark.invariant("An entry that the portal refuses delays no other entry and no report.")
@pytest.mark.parametrize("names_it", [True, False], ids=["named", "not named"])
@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("bad", [{0}, {39}, {3, 4, 27}, set(range(40))], ids=["first", "last", "some", "all"])
def test_an_entry_that_the_portal_refuses_is_left_out_and_the_rest_arrives(
    tmp_path: Path, names_it: bool, status: int, bad: set[int]
) -> None:
    def is_unfit(entry: Any) -> bool:
        return entry[1] in bad

    shop = Shop(tmp_path, refuses(is_unfit, names_it=names_it, status=status))
    shop.sender.append(METRICS, points(*range(40)))
    assert shop.finish()
    assert [entry[1] for entry in shop.ingest.has(METRICS, is_unfit)] == [n for n in range(40) if n not in bad]
    assert shop.ingest.reports() == ["exited"]
    assert [line[2] for line in shop.ingest.has(LOGS)] == [
        "an entry of metrics was not taken by the portal and is left out: unfit"
    ]


def test_entries_left_out_stay_left_out_after_a_restart(tmp_path: Path) -> None:
    before = Shop(tmp_path, refuses(lambda entry: entry[1] in (1, 4), names_it=True, status=422))
    before.sender.append(METRICS, points(0, 1, 2, 3, 4))
    assert before.finish()
    after = Shop(tmp_path, takes)
    after.sender.append(METRICS, points(5))
    assert after.finish()
    numbered = {
        number: entry[1]
        for number_of, entries in after.ingest.batches(METRICS)
        for number, entry in enumerate(entries, number_of)
    }
    assert numbered[4] == 5
    assert set(numbered) <= {3, 4}


@pytest.mark.parametrize("kind", [LOGS, METRICS, EVENTS])
def test_a_batch_that_is_refused_for_the_moment_is_sent_again_whole(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path, first([Refused(409, "busy", {})] * 3, of=kind))
    shop.sender.append(kind, ['[1.0, 1, "a", 1]', '[1.0, 2, "b", 2]'])
    assert shop.finish()
    assert [len(entries) for _, entries in shop.ingest.batches(kind)] == [2, 2, 2, 2]


@pytest.mark.parametrize("answer", [{}, {"last": None}, {"last": "3"}, {"last": -1}, {"html": "sign in"}])
def test_a_batch_is_acknowledged_only_by_an_answer_with_its_last_number(tmp_path: Path, answer: dict[str, Any]) -> None:
    shop = Shop(tmp_path, first([Taken(answer)] * 3, of=LOGS))
    shop.sender.append(LOGS, ['[1.0, "stdout", "one"]'])
    assert shop.finish()
    assert [number for number, _ in shop.ingest.batches(LOGS)] == [1, 1, 1, 1]


def test_a_gap_is_gone_back_to(tmp_path: Path) -> None:
    shop = Shop(tmp_path, first([Taken({"last": 1}), Gap(0)], of=LOGS))
    shop.sender.append(LOGS, ['[1.0, "stdout", "one"]'])
    assert shop.finish()
    again = Shop(tmp_path, first([Gap(0)], of=LOGS))
    again.sender.append(LOGS, ['[1.0, "stdout", "two"]'])
    assert again.finish()
    assert [entry[2] for entry in again.ingest.has(LOGS)] == ["one", "two"]


def test_a_report_that_the_portal_refuses_holds_up_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shop = Shop(tmp_path, first([Refused(422, "odd", {})], of="report"))
    shop.sender.report("registered")
    assert shop.finish()
    assert shop.ingest.reports() == ["registered", "exited"]
    assert "The portal refused a report: odd" in capsys.readouterr().err


# --- Files -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [413, 403, 502, 200])
def test_a_file_that_a_proxy_refuses_for_a_moment_arrives(tmp_path: Path, status: int) -> None:
    shop = Shop(tmp_path, first([Failed(status, "nginx")] * 20, of="artifacts"))
    (shop.output / "model").write_bytes(b"weights")
    assert shop.finish()
    assert shop.ingest.files == [b"weights"] * 21


def test_a_file_that_a_proxy_refuses_for_a_minute_is_left_out_and_the_end_is_reported(tmp_path: Path) -> None:
    shop = Shop(tmp_path, lambda call, body: Failed(413, "too large") if call == "artifacts" else takes(call, body))
    (shop.output / "model").write_bytes(b"weights")
    assert shop.finish()
    assert shop.ingest.reports() == ["exited"]
    assert [entry[2] for entry in shop.ingest.has(LOGS)] == [
        "model is not kept: what stands between this replica and the portal refuses it: too large"
    ]


@pytest.mark.parametrize("body", [{}, {"status": "ok"}, {"sha256": "0" * 64}, {"sha256": None}], ids=str)
def test_a_file_is_sent_again_until_the_answer_names_its_digest(tmp_path: Path, body: Mapping[str, Any]) -> None:
    shop = Shop(tmp_path, first([Taken(body)], of="artifacts"))
    (shop.output / "model").write_bytes(b"weights")
    assert shop.finish()
    assert shop.ingest.files == [b"weights"] * 2


# --- Disk ------------------------------------------------------------------------------------------------------------
def test_a_line_of_the_platform_that_cannot_be_kept_goes_to_the_agent_s_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, takes)

    def full(kind: str, entries: list[str]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shop.sender, "append", full)
    shop.sender.line("a remark")
    assert shop.finish()
    assert shop.ingest.reports() == ["exited"]
    assert "a remark (not in the log: No space left on device)" in capsys.readouterr().err


class Short:
    """Replacement of ``opened`` that fails with an error the given number of times."""

    def __init__(self, times: int, number: int) -> None:
        self.left, self.number, self.really = times, number, artifacts.opened

    def __call__(self, found: artifacts.Found) -> AbstractContextManager[BinaryIO]:
        if self.left:
            self.left -= 1
            raise OSError(self.number, os.strerror(self.number))
        return self.really(found)


def test_a_file_that_cannot_be_opened_for_a_moment_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path, takes)
    (shop.output / "model").write_bytes(b"weights")
    monkeypatch.setattr(artifacts, "opened", Short(5, errno.ENFILE))
    assert shop.finish()
    assert shop.ingest.files == [b"weights"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENFILE], ids=errno.errorcode.__getitem__)
def test_a_file_that_can_never_be_opened_is_left_out_and_the_end_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    shop = Shop(tmp_path, takes)
    (shop.output / "model").write_bytes(b"weights")
    monkeypatch.setattr(artifacts, "opened", Short(1000, number))
    assert shop.finish()
    assert shop.ingest.reports() == ["exited"]
    assert [entry[2] for entry in shop.ingest.has(LOGS)] == [
        f"model could not be read and is not kept: {os.strerror(number)}"
    ]


def unreadable() -> Batch:
    """Replace ``batch`` on a failing disk."""
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("kind", [LOGS, METRICS, EVENTS])
def test_a_spool_that_cannot_be_read_does_not_keep_the_rest_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    shop = Shop(tmp_path, takes)
    kept = {LOGS: '[1.0, "stdout", "one"]', METRICS: '[1.0, 1, "cost", 1.0]', EVENTS: '[1.0, "start", "begun"]'}
    for each, entry in kept.items():
        shop.sender.append(each, [entry])
    (shop.output / "model").write_bytes(b"weights")
    monkeypatch.setattr(shop.sender._spools[kind], "batch", unreadable)
    assert not shop.finish()
    assert shop.ingest.reports() == ["exited"]
    assert shop.ingest.files == [b"weights"]
    assert {each for each in kept if json.loads(kept[each]) in shop.ingest.has(each)} == kept.keys() - {kind}


@pytest.mark.parametrize(("kind", "shown_in"), [(LOGS, EVENTS), (METRICS, LOGS), (METRICS, EVENTS), (EVENTS, LOGS)])
def test_a_spool_that_cannot_be_read_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, shown_in: str
) -> None:
    shop = Shop(tmp_path, takes)
    shop.sender.append(kind, ['[1.0, "one", "two"]'])
    monkeypatch.setattr(shop.sender._spools[kind], "batch", unreadable)
    shop.finish()
    assert [from_json(entry[2]) for entry in shop.ingest.has(shown_in)] == [
        messages.SPOOL_UNREADABLE(kind=kind, error="Input/output error")
    ]


def test_an_unreadable_spool_does_not_stop_heartbeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path, takes)
    monkeypatch.setattr(contract, "HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr(contract, "BATCH_SECONDS", 0.0)
    shop.sender.append(METRICS, ['[1.0, 1, "cost", 1.0]'])
    monkeypatch.setattr(shop.sender._spools[METRICS], "batch", unreadable)
    shop.sender._send_due()
    assert [call for call, _ in shop.ingest.sent][-1] == "heartbeat"


def test_a_spool_that_can_be_read_again_is_sent_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path, takes)
    monkeypatch.setattr(contract, "BATCH_SECONDS", 0.0)
    shop.sender.append(METRICS, ['[1.0, 1, "cost", 1.0]'])
    spool = shop.sender._spools[METRICS]
    with monkeypatch.context() as broken:
        broken.setattr(spool, "batch", unreadable)
        shop.sender._send_due()
    assert shop.finish()
    assert shop.ingest.has(METRICS) == [[1.0, 1, "cost", 1.0]]


def test_a_replica_that_always_has_something_to_send_sends_heartbeats_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "HEARTBEAT_LIMIT_SECONDS", 0.0)
    shop = Shop(tmp_path, takes)
    shop.sender._send_due()
    assert [call for call, _ in shop.ingest.sent][-1:] == ["heartbeat"]


# --- Overloaded portal -----------------------------------------------------------------------------------------------
def paced(seconds: Any) -> Reply:
    """Reply as a portal that names an age of batches."""

    def reply(call: str, message: Any) -> Answer:
        answer = takes(call, message)
        assert isinstance(answer, Taken)
        return Taken({**answer.body, contract.PACE: seconds})

    return reply


def age_after(shop: Shop) -> float:
    """Return the age at which a batch is due after an answer of the portal, in seconds."""
    shop.sender._call("heartbeat", {"replica": "trainer-0"})
    shop.sender.append(LOGS, ['[1.0, "stdout", "two"]'])
    due = shop.sender._due(LOGS, 0.0)
    since = shop.sender._spools[LOGS]._waiting_since
    assert due is not None and since is not None
    return due - since


@pytest.mark.invariant("An agent sends batches at the age that the portal names in its last answer.")
@pytest.mark.parametrize(
    ("named", "age"),
    [
        (3.0, 3.0),
        (3600, contract.BATCH_SECONDS_LIMIT),
        (0.0, contract.BATCH_SECONDS),
        ("3", contract.BATCH_SECONDS),
        (float("nan"), contract.BATCH_SECONDS),
    ],
)
def test_batches_wait_for_as_long_as_the_portal_says_within_limits(tmp_path: Path, named: Any, age: float) -> None:
    assert age_after(Shop(tmp_path, paced(named))) == pytest.approx(age)


def test_batches_are_sent_early_again_when_the_portal_names_no_age(tmp_path: Path) -> None:
    shop = Shop(tmp_path, paced(3.0))
    age_after(shop)
    shop.ingest.reply = takes
    assert age_after(shop) == pytest.approx(contract.BATCH_SECONDS)


def test_a_whole_batch_is_sent_at_once_to_an_overloaded_portal(tmp_path: Path) -> None:
    shop = Shop(tmp_path, paced(3.0))
    shop.sender._call("heartbeat", {"replica": "trainer-0"})
    shop.sender.append(LOGS, [json.dumps([1.0, "stdout", "x" * contract.BATCH_BYTES])])
    assert shop.sender._due(LOGS, 0.0) == 0.0


def test_the_end_of_a_replica_does_not_wait_for_the_age_of_its_batches(tmp_path: Path) -> None:
    shop = Shop(tmp_path, paced(contract.BATCH_SECONDS_LIMIT))
    shop.sender.append(LOGS, ['[1.0, "stdout", "one"]'])
    assert shop.finish()
    assert shop.ingest.has(LOGS) == [[1.0, "stdout", "one"]]
