"""The child's end of the link, over a real socket pair."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime import contract
from runtime.agent_channel import Channel
from runtime.contract import Member
from runtime.errors import MixedReleases, UsageError
from runtime.messages import to_json
from runtime.messages import training as messages
from tests.messages import pattern

MASTER = Member(contract.MASTER, 0, 7, "127.0.0.1:4567")


class AgentEnd:
    """The other end of the socket."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._lines = link.makefile("rb")

    def read(self) -> dict[str, Any]:
        return json.loads(self._lines.readline())

    def send(self, **message: Any) -> None:
        self.link.sendall(json.dumps(message).encode() + b"\n")

    def send_members(self, revision: int, *members: Member) -> None:
        self.send(op=contract.MEMBERS, revision=revision, members=[member.to_json() for member in members])

    def hang_up(self) -> None:
        self._lines.close()
        self.link.close()


@pytest.fixture
def pair() -> Iterator[tuple[Channel, AgentEnd]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(5)
    channel, agent = Channel(ours), AgentEnd(theirs)
    yield channel, agent
    agent.hang_up()
    channel.close()


def test_hello_carries_the_address_and_the_release(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    channel.hello("127.0.0.1:99")
    assert agent.read() == {"op": "hello", "address": "127.0.0.1:99", "release": contract.RELEASE}


def test_the_release_is_that_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["version"] == contract.RELEASE


@pytest.mark.invariant("Processes of two releases of the runtime never train one job.")
def test_an_error_for_mixed_releases_names_them_and_the_remedy(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    same = Member(contract.MASTER, 0, 1, release=contract.RELEASE)
    agent.send_members(1, same, Member(contract.PSERVER, 0, 2, release="9.9.0"))
    words = pattern(messages.MIXED_RELEASES, ours=contract.RELEASE, replica="pserver-0", theirs="9.9.0")
    with pytest.raises(MixedReleases, match=words):
        channel.wait_for_members(bool, 5)
    agent.send_members(2, same, Member(contract.PSERVER, 0, 3, release=contract.RELEASE))
    assert len(channel.wait_for_members(lambda members: members[1].incarnation == 3, 5)) == 2


def test_points_arrive_in_order_and_non_finite_numbers_become_text(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    values = [1.5, float("nan"), float("inf"), float("-inf")]
    channel.metrics([(1.0, step, "cost", value) for step, value in enumerate(values)])
    assert agent.read()["points"] == [
        [1.0, 0, "cost", 1.5], [1.0, 1, "cost", "NaN"], [1.0, 2, "cost", "Infinity"], [1.0, 3, "cost", "-Infinity"],
    ]  # fmt: skip


def test_close_sends_queued_messages(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    channel.metrics([(0.0, step, "cost", 1.0) for step in range(2500)])
    channel.close()
    assert sum(len(agent.read()["points"]) for _ in range(3)) == 2500


def test_waiting_for_members_ends_when_they_are_there(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    agent.send_members(1)
    agent.send_members(2, MASTER)
    assert channel.wait_for_members(lambda members: len(members) == 1, timeout=5) == (MASTER,)
    assert channel.members() == (MASTER,)


def test_the_timeout_error_lists_the_members(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    agent.send_members(1, MASTER)
    channel.wait_for_members(lambda members: True, timeout=5)
    with pytest.raises(TimeoutError, match=pattern(messages.PROCESSES_MISSING, seconds="0.01", names="master-0")):
        channel.wait_for_members(lambda members: len(members) == 2, timeout=0.01)


def broken(_members: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_callback_that_fails_fences_the_process_and_keeps_no_other_back(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    notified, fenced = threading.Event(), list[str]()
    channel.on_members(broken)
    channel.on_members(lambda members: notified.set())
    channel.on_fenced(fenced.append)
    agent.send_members(1, MASTER)
    assert notified.wait(5)
    assert fenced == ['a change of the members could not be taken in (RuntimeError("can\'t start new thread"))']
    agent.send_members(2)
    assert channel.wait_for_members(lambda members: not members, 5) == ()


def test_a_callback_that_fails_keeps_no_other_from_the_fence(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    fenced = threading.Event()
    channel.on_fenced(broken)
    channel.on_fenced(lambda why: fenced.set())
    agent.send(op=contract.FENCED, why="end")
    assert fenced.wait(5)


@pytest.mark.parametrize(
    "line", [b"[1]\n", b"{}\n", b'{"op": "members"}\n', b"[" * 100_000 + b"\n"], ids=lambda line: line[:9]
)
def test_a_message_that_makes_no_sense_fences_the_process(pair: tuple[Channel, AgentEnd], line: bytes) -> None:
    channel, agent = pair
    fenced = threading.Event()
    channel.on_fenced(lambda why: fenced.set())
    agent.link.sendall(line)
    assert fenced.wait(5)


def test_points_that_cannot_be_sent_hold_up_nobody(
    pair: tuple[Channel, AgentEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, _ = pair
    monkeypatch.setattr("runtime.agent_channel.WAITING_POINTS", 2)
    monkeypatch.setattr("runtime.agent_channel._encode", broken)
    for _ in range(5):
        channel.metrics([(0.0, 0, "cost", 1.0)] * 2)
    assert not channel.flush(5)


def test_an_older_revision_is_not_believed(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    agent.send_members(5, MASTER)
    agent.send_members(4)
    agent.send(op=contract.FENCED, why="end")
    fenced = threading.Event()
    channel.on_fenced(lambda why: fenced.set())
    assert fenced.wait(5)
    assert channel.members() == (MASTER,)


def test_a_late_callback_gets_the_current_members(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    agent.send_members(1, MASTER)
    channel.wait_for_members(bool, timeout=5)
    seen: list[tuple[Member, ...]] = []
    channel.on_members(seen.append)
    assert seen == [(MASTER,)]


def test_fencing_is_reported_with_its_reason(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    reasons: list[str] = []
    fenced = threading.Event()
    channel.on_fenced(lambda why: (reasons.append(why), fenced.set()))
    agent.send(op=contract.FENCED, why="the lease was lost")
    assert fenced.wait(5)
    assert reasons == ["the lease was lost"]


def test_a_broken_link_counts_as_fenced_and_ends_waiting(pair: tuple[Channel, AgentEnd]) -> None:
    channel, agent = pair
    fenced = threading.Event()
    channel.on_fenced(lambda why: fenced.set())
    agent.hang_up()
    assert fenced.wait(5)
    with pytest.raises(ConnectionError, match=pattern(messages.MEMBERS_UNAVAILABLE)):
        channel.wait_for_members(bool, timeout=5)


def test_without_an_agent_there_is_no_channel() -> None:
    with pytest.raises(LookupError, match="no agent"):
        Channel.from_environment({})


def test_the_socket_is_not_inherited_by_programs_that_the_child_starts() -> None:
    ours, theirs = socket.socketpair()
    os.set_inheritable(ours.fileno(), True)
    channel = Channel.from_environment({contract.AGENT_FD: str(ours.detach())})
    number = channel._link.fileno()
    probe = f"import os, sys\ntry: os.fstat({number})\nexcept OSError: sys.exit(3)"
    assert subprocess.run([sys.executable, "-c", probe], close_fds=False, check=False).returncode == 3
    theirs.close()
    channel.close()


def test_an_error_of_the_runtime_that_nothing_catches_is_reported_with_its_code(
    pair: tuple[Channel, AgentEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, agent = pair
    printed: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: printed.append(error))
    channel.report_failures()
    for error in (ValueError("of the script"), UsageError(messages.INIT_CALLED_TWICE())):
        sys.excepthook(type(error), error, None)
    assert agent.read() == {"op": contract.FAILURE, "text": to_json(messages.INIT_CALLED_TWICE())}
    assert [type(error) for error in printed] == [ValueError, UsageError]
