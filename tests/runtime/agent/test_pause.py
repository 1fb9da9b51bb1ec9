"""Pauses of replicas under their agents."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.runtime.agent.conftest import Replica
from tests.runtime.agent.test_control import KEY, called
from tests.waiting import until

pytestmark = pytest.mark.processes

COUNTS = """
    import os, time
    if os.fork() == 0:
        while True:
            time.sleep(600)
    number = 0
    while True:
        print(number, flush=True)
        number += 1
        time.sleep(0.01)
"""


def begun(replica: Replica, script: str = COUNTS, **variables: Any) -> Replica:
    replica.start(script, CONTROL_KEY=KEY.decode(), **variables)
    until("it runs", lambda: replica.portal.texts("stdout"), story=lambda: str(replica.portal.texts("stderr")))
    return replica


def pause(replica: Replica, on: Any, how: Any = "signal", target: Any = 0, since: Any = 1.0) -> dict[str, Any]:
    return called(replica.directory, {"call": "pause", "how": how, "on": on, "target": target, "since": since})


def test_all_processes_stop_by_a_signal_and_go_on(replica: Replica) -> None:
    begun(replica)
    assert pause(replica, on=True) == {"ok": True, "stopped": True, "version": None}
    assert called(replica.directory, {"call": "stacks"})["state"] == "stopped"
    assert pause(replica, on=False) == {"ok": True, "stopped": False, "version": None}
    seen = len(replica.portal.texts("stdout"))
    until("it goes on", lambda: len(replica.portal.texts("stdout")) > seen + 20)


@pytest.mark.invariant("A request to stop that arrives after the end of its pause stops nothing.")
def test_a_late_request_of_an_ended_pause_is_refused(replica: Replica) -> None:
    begun(replica)
    assert pause(replica, on=True)["stopped"]
    assert not pause(replica, on=False)["stopped"]
    assert pause(replica, on=True)["code"] == "outdated"
    assert called(replica.directory, {"call": "stacks"})["state"] == "running"
    assert pause(replica, on=True, since=2.0)["stopped"]
    assert pause(replica, on=False)["code"] == "outdated"


def test_a_stopped_program_sees_the_request_to_stop(replica: Replica) -> None:
    ends = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        print("up", flush=True)
        while True:
            time.sleep(0.01)
    """
    begun(replica, ends, GRACE_SECONDS=60)
    assert pause(replica, on=True)["stopped"]
    assert replica.process is not None
    os.kill(replica.process.pid, signal.SIGTERM)
    replica.wait(60)
    assert replica.portal.last_report()["code"] == 5


def test_a_program_that_does_not_answer_does_not_stand(replica: Replica) -> None:
    assert pause(begun(replica), on=True, how="steps") == {"ok": True, "stopped": False, "version": None}


@pytest.mark.parametrize(
    "wanted",
    [
        {"on": 1},
        {"on": True, "how": "kill"},
        {"on": True, "target": -1},
        {"on": True, "target": True},
        {"on": True, "since": None},
    ],
)
def test_an_impossible_request_is_refused(replica: Replica, wanted: dict[str, Any]) -> None:
    assert pause(begun(replica), **wanted)["code"] == "invalid"


def test_code_of_the_platform_is_not_stopped_by_a_signal(replica: Replica) -> None:
    replica.start(COUNTS, CONTROL_KEY=KEY.decode(), ROLE="pserver", REPLICA="pserver-0")
    until("it runs", lambda: replica.portal.texts("stdout"))
    answer = called(
        replica.directory, {"call": "pause", "how": "signal", "on": True, "target": 0, "since": 1.0}, "pserver-0"
    )
    assert answer["code"] == "unavailable"
