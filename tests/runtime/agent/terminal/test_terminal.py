"""Terminals and commands of a whole agent, over its control socket."""

from __future__ import annotations

import pytest

from runtime.agent.terminal.handlers import MOST_ARGUMENTS, MOST_COMMANDS
from runtime.agent.terminal.sessions import MOST_SESSIONS
from runtime.control import identity
from tests.runtime.agent.callers import KEY, Caller
from tests.runtime.agent.cells import processes_named
from tests.runtime.agent.conftest import Replica
from tests.waiting import until

pytestmark = pytest.mark.processes
ENDLESS = "import time\nprint('up', flush=True)\ntime.sleep(600)"
TERMINAL = {"call": "terminal", "columns": 80, "rows": 24}


@pytest.fixture
def running(replica: Replica) -> Replica:
    replica.start(ENDLESS, CONTROL_KEY=KEY, SANDBOX="landlock")
    until("it runs", lambda: (replica.directory / identity.SOCKET_FILE).exists() and replica.portal.texts("stdout"))
    return replica


def test_a_shell_survives_its_viewer_and_shows_what_was_missed_once(running: Replica) -> None:
    first = Caller(running.directory, **TERMINAL)
    session = first.message("session")["session"]
    first.enter("printf 'one\\n'; read line; printf '%s\\n' \"<$line>\"\n")
    first.until("one\r\n")
    first.leave()
    second = Caller(running.directory, **TERMINAL, session=session, after=len(first.output))
    assert second.message("session")["from"] == len(first.output)
    second.enter("two\n")
    second.until("<two>\r\n")
    third = Caller(running.directory, **TERMINAL, session=session, after=-1)
    assert third.until("<two>\r\n").startswith((first.output + second.output).decode())


def test_viewers_share_a_shell_until_it_ends_with_its_code(running: Replica) -> None:
    first = Caller(running.directory, **TERMINAL)
    second = Caller(running.directory, **TERMINAL, session=first.message("session")["session"])
    second.enter("exit 7\n")
    assert first.message("exit")["code"] == second.message("exit")["code"] == 7
    late = Caller(running.directory, **TERMINAL, session=first.message("session")["session"])
    assert late.message("error")["code"] == "terminal_ended"


def test_a_new_size_reaches_the_program_and_an_absurd_one_is_brought_within_limits(running: Replica) -> None:
    caller = Caller(running.directory, call="terminal", columns=10**30, rows=-5)
    caller.enter("stty size\n")
    caller.until("1 1000\r\n")
    caller.enter('sh -c \'trap "stty size" WINCH; echo re""ady; while :; do sleep 0.05; done\'\n')
    caller.until("ready\r\n")
    caller.tell(op="resize", columns=123, rows=45)
    caller.until("45 123\r\n")
    caller.tell(op="resize", columns="wide", rows=None)
    caller.until("24 80\r\n")


def test_characters_and_bytes_pass_unchanged(running: Replica) -> None:
    caller = Caller(running.directory, **TERMINAL)
    caller.enter("stty -echo; printf '\\377\\000|'; cat\n")
    while b"\xff\x00|" not in caller.output:
        caller.take()
    for piece in ("训练".encode()[:2], "训练".encode()[2:], b"\n"):
        caller.enter(piece)
    caller.until("训练\r\n")


def test_a_flood_is_paced_by_its_viewer_and_can_be_interrupted(running: Replica) -> None:
    caller = Caller(running.directory, **TERMINAL)
    caller.enter("yes 'a line of a flood'; echo over\n")
    caller.until("a line of a flood\r\na line")
    caller.enter("\x03")
    caller.enter("echo qu''iet\n")
    caller.until("quiet\r\n")
    assert not any(message["t"] == "gap" for message in caller.messages)


def test_a_viewer_that_returns_too_late_is_shown_how_much_is_missing(running: Replica) -> None:
    caller = Caller(running.directory, **TERMINAL)
    session = caller.message("session")["session"]
    caller.enter("read go; head -c 3000000 /dev/zero | tr '\\0' x; echo d''one > flag\n")
    caller.until("flag")
    seen = len(caller.output)
    caller.enter("\n")
    caller.leave()
    until("it has printed", lambda: (running.directory / "work" / "flag").exists())
    late = Caller(running.directory, **TERMINAL, session=session, after=seen)
    late.enter("echo b''ack\n")
    late.until("back\r\n")
    assert late.message("gap")["bytes"] > 3_000_000 - 2**20 - 2**16


def test_a_command_has_its_own_streams_input_and_exit_code(running: Replica) -> None:
    caller = Caller(running.directory, call="exec", command=["sh", "-c", "cat; echo no >&2; exit 3"])
    caller.enter("in")
    caller.tell(op="end_input")
    assert caller.streams() == ("in", "no\n", 3)
    missing = Caller(running.directory, call="exec", command=["/nowhere"])
    assert missing.message("error")["code"] == "not_started"


@pytest.mark.parametrize("command", [None, "ls", [], [""], ["a\0b"], ["a"] * (MOST_ARGUMENTS + 1), [1]])
def test_what_is_no_command_is_refused(command: object, replica: Replica, running: Replica) -> None:
    assert Caller(running.directory, call="exec", command=command).message("error")["code"] == "invalid_command"


def test_a_command_is_killed_when_its_caller_leaves(running: Replica) -> None:
    caller = Caller(running.directory, call="exec", command=["sh", "-c", "echo up; exec sleep 654.321"])
    while b"up" not in caller.output:
        caller.take()
    caller.leave()
    until("it is gone", lambda: not processes_named("654.321"))


def test_a_replica_has_a_limited_number_of_terminals(running: Replica) -> None:
    callers = [Caller(running.directory, **TERMINAL) for _ in range(MOST_SESSIONS)]
    for caller in callers:
        caller.message("session")
    assert Caller(running.directory, **TERMINAL).message("error")["code"] == "too_many_terminals"
    callers[0].tell(op="end")
    callers[0].message("exit")
    until("its place is free", lambda: Caller(running.directory, **TERMINAL).message("session"))


def test_shells_and_what_they_started_end_with_the_replica(running: Replica) -> None:
    caller = Caller(running.directory, **TERMINAL)
    caller.enter("trap '' HUP TERM; sleep 987.654 & sleep 987.655\n")
    until("they run", lambda: len(processes_named("987.65")) >= 2)
    running.ask_to_stop()
    running.wait()
    assert not processes_named("987.65")
    assert caller.is_over()


def test_a_process_of_the_platform_has_no_terminal(replica: Replica) -> None:
    replica.directory = replica.directory.parent / "pserver-0"
    replica.start(ENDLESS, CONTROL_KEY=KEY, ROLE="pserver", REPLICA="pserver-0")
    until("it runs", lambda: replica.portal.texts("stdout"))
    assert Caller(replica.directory, **TERMINAL).message("error")["code"] == "no_user_code"
    assert Caller(replica.directory, call="exec", command=["id"]).message("error")["code"] == "no_user_code"


# --- Programs that do not read, write or end -------------------------------------------------------------------------
def test_a_command_that_reads_no_input_is_killed_when_its_caller_leaves(running: Replica) -> None:
    caller = Caller(running.directory, call="exec", command=["sleep", "654.987"])
    caller.message("started")
    caller.enter(bytes(200_000))
    caller.leave()
    until("it is gone", lambda: not processes_named("654.987"))


def test_what_a_command_left_behind_does_not_keep_its_place(running: Replica) -> None:
    for _ in range(MOST_COMMANDS):
        caller = Caller(running.directory, call="exec", command=["sh", "-c", "sleep 600 & echo up"])
        while b"up" not in caller.output:
            caller.take()
        caller.leave()
    until("a place is free", lambda: has_started(running))


def has_started(replica: Replica) -> bool:
    caller = Caller(replica.directory, call="exec", command=["true"])
    try:
        return caller.take() == {"t": "started"}
    finally:
        caller.leave()


def test_processes_of_a_command_without_namespaces_count_once(replica: Replica) -> None:
    replica.start(ENDLESS, CONTROL_KEY=KEY, SANDBOX="landlock", LIMIT_PROCESSES=30)
    until("it runs", lambda: replica.portal.texts("stdout"))
    starts = "for n in $(seq 18); do sleep 0.7 & done; wait; echo fine"
    caller = Caller(replica.directory, call="exec", command=["sh", "-c", starts])
    assert caller.streams() == ("fine\n", "", 0)


def test_a_command_has_no_descriptors_but_its_streams(running: Replica) -> None:
    caller = Caller(running.directory, call="exec", command=["sh", "-c", "ls -1 /proc/$$/fd"])
    assert caller.streams()[0].split() == ["0", "1", "2"]
