"""Diagnosis of a stall from stacks and the last reports of steps: the twelve hangs and their neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.lifecycle.progress import diagnosis, stacks
from jobs.lifecycle.progress.diagnosis import Diagnosis, Facts, diagnose
from jobs.lifecycle.progress.signs import TrainerSigns
from jobs.lifecycle.progress.stacks import Frame, ReplicaStack, Thread

NOW = 1000.0
LIB = "/usr/lib/python3.11"
USER = ("/work/code/train.py", 14, "step")
PULL = [
    ("/x/runtime/protocol/connection.py", 90, "fill"),
    ("/x/runtime/trainer/servers/server_connection.py", 200, "_await_reply"),
    ("/x/runtime/trainer/params.py", 180, "push_pull"),
]
IDLE_SERVER = [("/x/runtime/protocol/server.py", 100, "serve")]
BUSY_SERVER = [("/x/runtime/pserver/shard.py", 210, "push"), *IDLE_SERVER]


def stack(
    replica: str,
    *frames: tuple[str, int, str],
    state: str = "running",
    full: bool = False,
    **more: list[tuple[str, int, str]],
) -> ReplicaStack:
    threads = {"MainThread": list(frames), **more}.items()
    return ReplicaStack(replica, state, tuple(thread(name, *listed) for name, listed in threads), full)


def thread(name: str, *frames: tuple[str, int, str], process: int = 1) -> Thread:
    return Thread(name, native=False, frames=tuple(Frame(*frame) for frame in frames), process=process)


def waiter(replica: str, line: int = 14) -> ReplicaStack:
    return stack(replica, *PULL, ("/work/code/train.py", line, "step"))


def found(*given: ReplicaStack, text: str = "", facts: Facts | None = None, **signs: TrainerSigns) -> Diagnosis:
    names = {name.replace("_", "-"): one for name, one in signs.items()}
    known = facts or Facts(NOW, source=lambda file, line: text)
    return diagnose(given, names, [one.replica for one in given], known)


def signs(**fields: Any) -> TrainerSigns:
    return TrainerSigns("trainer-1", looped=True, **{"reported": NOW, **fields})


# --- The hangs of a trainer: trainer-1 is the cause, trainer-0 waits for it ------------------------------------------
LOCK = (f"{LIB}/threading.py", 327, "wait")
HANGS: Mapping[str, tuple[ReplicaStack, str, str]] = {
    "deadlock": (stack("trainer-1", USER), "    lock.acquire()", stacks.LOCK),
    "deadlock in a condition": (stack("trainer-1", LOCK, USER), "", stacks.LOCK),
    "blocked pipe": (stack("trainer-1", USER), "data = os.read(pipe, 1)", stacks.PIPE),
    "blocked process": (stack("trainer-1", (f"{LIB}/subprocess.py", 1209, "communicate"), USER), "", stacks.PIPE),
    "dead file system": (stack("trainer-1", USER), "rows = open(path).read()", stacks.FILE),
    "two-party wait": (stack("trainer-1", (f"{LIB}/socket.py", 706, "readinto"), USER), "", stacks.NETWORK),
    "SIGSTOP": (stack("trainer-1", state="stopped"), "", diagnosis.STOPPED),
    "spin in C that holds the lock": (stack("trainer-1", USER, state="unresponsive"), "", diagnosis.UNRESPONSIVE),
    "spin in C": (stack("trainer-1", USER), "library.spin()", diagnosis.STANDS),
    "stuck decode=": (
        stack("trainer-1", ("/x/runtime/trainer/tasks/read_ahead.py", 108, "__next__"), USER, reading=[USER]),
        "",
        stacks.DECODE,
    ),
}


@pytest.mark.parametrize("name", HANGS)
def test_the_process_of_a_hang_is_named_with_its_cause_and_who_waits(name: str) -> None:
    hung, text, cause = HANGS[name]
    result = found(waiter("trainer-0"), hung, text=text)
    assert (result.replica, result.cause) == ("trainer-1", cause)
    assert result.text.endswith("; trainer-0 waits for it")


@pytest.mark.parametrize("name", [name for name in HANGS if name != "SIGSTOP"])
def test_the_line_of_a_hang_is_named(name: str) -> None:
    hung, text, _ = HANGS[name]
    assert "train.py line 14 (step)" in found(waiter("trainer-0"), hung, text=text).text


def test_a_stuck_decode_is_named_at_the_line_of_decode_and_not_of_the_loop() -> None:
    waits_for_batch = [("/x/runtime/trainer/tasks/read_ahead.py", 108, "__next__"), USER]
    result = found(stack("trainer-1", *waits_for_batch, reading=[("/work/code/train.py", 3, "decode")]))
    assert result.text == "trainer-1 stands at train.py line 3 (decode) and waits for decode= of the reader"


def test_a_garbage_collection_storm_is_named_with_its_share() -> None:
    result = found(waiter("trainer-0"), stack("trainer-1", USER), trainer_1=signs(collecting=0.93))
    assert (result.replica, result.cause) == ("trainer-1", diagnosis.COLLECTS)
    assert "93 % of its time in garbage collections, at train.py line 14" in result.text


def test_a_full_disk_is_named() -> None:
    result = found(waiter("trainer-0"), stack("trainer-1", USER, full=True))
    assert (result.replica, result.cause) == ("trainer-1", diagnosis.FULL)


def test_of_replicas_on_one_full_disk_the_one_that_waits_is_not_the_cause() -> None:
    result = found(replace(waiter("trainer-0"), full=True), stack("trainer-1", USER, full=True))
    assert (result.replica, result.cause) == ("trainer-1", diagnosis.FULL)


def test_the_main_thread_of_a_dump_is_the_oldest_of_the_first_process() -> None:
    """No thread of a dump has a name. A process dumps its newest thread first, and children come after their parent."""
    watch = thread("", ("/x/runtime/trainer/step_watch.py", 101, "_run"))
    child = thread("", ("/work/code/train.py", 99, "child"), process=2)
    result = found(ReplicaStack("trainer-1", "unresponsive", (watch, thread("", USER), child)))
    assert "does not respond at train.py line 14 (step)" in result.text


# --- Hangs in which every trainer waits -----------------------------------------------------------------------------
def test_swapped_pushes_are_two_places_at_which_trainers_wait() -> None:
    result = found(waiter("trainer-0", 20), waiter("trainer-1", 31), stack("pserver-0", *IDLE_SERVER))
    assert result.cause == diagnosis.SWAPPED
    assert "line 20" in result.text
    assert "line 31" in result.text


def test_a_server_that_works_while_all_wait_is_overloaded() -> None:
    result = found(waiter("trainer-0"), waiter("trainer-1"), stack("pserver-0", *BUSY_SERVER))
    assert (result.replica, result.cause) == ("pserver-0", diagnosis.OVERLOADED)


def test_a_server_that_is_idle_while_all_wait_gets_no_packets() -> None:
    result = found(waiter("trainer-0"), waiter("trainer-1"), stack("pserver-0", *IDLE_SERVER))
    assert (result.replica, result.cause) == ("pserver-0", diagnosis.UNREACHED)


def test_a_stopped_server_is_the_cause() -> None:
    result = found(waiter("trainer-0"), stack("pserver-0", state="stopped"))
    assert result.text == "pserver-0 is stopped by a signal (SIGSTOP); trainer-0 waits for it"


# --- Without stacks --------------------------------------------------------------------------------------------------
def without_stacks(**trainers: TrainerSigns) -> Diagnosis:
    names = {name.replace("_", "-"): one for name, one in trainers.items()}
    return diagnose((), names, list(names), Facts(NOW))


WAITS = signs(part="wait", still=60.0)


def test_without_a_stack_the_part_of_the_step_is_named() -> None:
    result = without_stacks(trainer_0=WAITS, trainer_1=signs(part="read", part_seconds=60.0, still=60.0))
    assert result.text == "trainer-1 has been reading at the same instruction for 60 s; trainer-0 waits for it"


def test_without_a_stack_a_silent_process_does_not_respond() -> None:
    result = without_stacks(trainer_0=WAITS, trainer_1=signs(part="", reported=0.0))
    assert (result.replica, result.cause) == ("trainer-1", diagnosis.UNRESPONSIVE)


def test_without_stacks_and_reports_the_diagnosis_says_so() -> None:
    assert diagnose((), {}, ["trainer-0"], Facts(NOW)) == Diagnosis(
        "the processes do not say where they are", "", diagnosis.NOT_KNOWN
    )


# --- Any input -------------------------------------------------------------------------------------------------------
frames = st.tuples(
    st.sampled_from([USER[0], "/x/runtime/trainer/params.py", f"{LIB}/threading.py", f"{LIB}/queue.py", "<frozen x>"]),
    st.integers(0, 10**6),
    st.sampled_from(["wait", "step", "__next__", ""]),
)
any_stack = st.builds(
    lambda replica, state, listed: stack(replica, *listed, state=state),
    st.sampled_from(["trainer-0", "trainer-1", "pserver-0", "master-0"]),
    st.sampled_from(["running", "stopped", "unresponsive", "gone"]),
    st.lists(frames, max_size=4),
)


@given(st.lists(any_stack, max_size=5, unique_by=lambda one: one.replica), st.text(max_size=30))
def test_any_stacks_give_a_diagnosis_of_a_replica_that_runs(given_stacks: list[ReplicaStack], text: str) -> None:
    result = found(*given_stacks, text=text)
    assert result.text
    assert result.replica in {"", *(one.replica for one in given_stacks)}
