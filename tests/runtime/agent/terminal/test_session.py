"""One terminal whose shell is not there, or has closed its streams."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from runtime.agent.terminal.frames import ControlFrames
from runtime.agent.terminal.guest import Guests, NotLaunched
from runtime.agent.terminal.session import Session, Size
from runtime.agent.terminal.sessions import Sessions
from runtime.control.connection import Connection

TURNS = 20


class ClosingShell:
    """A shell that has closed its terminal and runs until it is killed."""

    def __init__(self) -> None:
        self.status, self._end = os.pipe()

    def terminate(self) -> None:
        os.close(self._end)

    def exit_code(self) -> int:
        return 0


class ClosingGuests:
    def __init__(self) -> None:
        self.shell = ClosingShell()

    def start(self, *_: Any, **__: Any) -> ClosingShell:
        return self.shell

    def end(self, shell: ClosingShell) -> None:
        os.close(shell.status)


class Counted(Session):
    """A session that notes when it has looked for output for the TURNSth time."""

    turns, many = 0, threading.Event()

    def _store(self) -> bool:
        self.turns += 1
        if self.turns == TURNS:
            self.many.set()
        return super()._store()


@pytest.fixture
def session() -> Iterator[Counted]:
    ended = threading.Event()
    session = Counted(cast(Guests, ClosingGuests()), "a", Size(80, 24), lambda _: ended.set())
    session.start()
    yield session
    session.stop()
    assert ended.wait(60)


def test_a_shell_that_has_closed_its_terminal_does_not_occupy_the_agent(session: Counted) -> None:
    assert not session.many.wait(0.5)


def test_input_for_a_shell_that_has_closed_its_terminal_is_dropped(session: Counted) -> None:
    ours, theirs = socket.socketpair()
    written = threading.Event()

    def write() -> None:
        session.write(b"nobody reads this\n", ControlFrames(Connection(ours)))
        written.set()

    threading.Thread(target=write, daemon=True).start()
    assert written.wait(60)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("error", [RuntimeError("no thread"), NotLaunched("no descriptor")])
def test_a_terminal_that_could_not_be_started_does_not_keep_its_place(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refused(self: Session) -> None:
        raise error

    monkeypatch.setattr(Session, "start", refused)
    sessions = Sessions(cast(Guests, ClosingGuests()), most=1)
    for _ in range(2):
        with pytest.raises(type(error)):
            sessions.create(Size(80, 24))
