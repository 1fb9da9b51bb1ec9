"""Programs that are held at their exception, whole agents with real processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import pytest

from runtime.inspection import holding, inside
from tests.runtime.agent.conftest import Replica
from tests.runtime.agent.test_control import KEY, called
from tests.waiting import until

pytestmark = pytest.mark.processes

FAILS = """
    import numpy, threading
    class Batch:
        def __repr__(self):
            return "x" * 10_000
    def train(step, rate):
        weights = numpy.arange(12, dtype="float32").reshape(3, 4)
        names = ["a"] * 1000
        batch = Batch()
        raise ValueError("no such step")
    print("up", flush=True)
    train(3, rate=0.5)
"""


def begun(replica: Replica, script: str = FAILS, seconds: int = 600, **variables: Any) -> Replica:
    return replica.start(script, CONTROL_KEY=KEY.decode(), HOLD=seconds, **variables)


def phases(replica: Replica) -> list[str]:
    return [report["phase"] for report in replica.portal.reports]


def held(replica: Replica) -> Replica:
    until("it is held", lambda: "held" in phases(replica), story=lambda: str(replica.portal.texts("stderr")))
    return replica


def test_a_program_that_fails_is_held_with_its_traceback_in_the_log(replica: Replica) -> None:
    held(begun(replica))
    (report,) = [report for report in replica.portal.reports if report["phase"] == "held"]
    assert (report["exception"], report["seconds"]) == ("ValueError", 600)
    assert abs(report["until"] - time.time() - 600) < 30
    until("the traceback", lambda: "ValueError: no such step" in replica.portal.texts("stderr"))


def test_the_variables_of_each_frame_are_shown_with_type_size_and_a_short_text(replica: Replica) -> None:
    answer = called(held(begun(replica)).directory, {"call": "variables"})
    assert (answer["exception"], answer["message"], answer["complete"]) == ("ValueError", "no such step", True)
    assert [(one["file"], one["function"], one["line"]) for one in answer["frames"]] == [
        ("train.py", "train", 10), ("train.py", "<module>", 12)
    ]  # fmt: skip
    shown = {one["name"]: one for one in answer["frames"][0]["variables"]}
    assert (shown["step"]["type"], shown["step"]["text"], shown["rate"]["text"]) == ("int", "3", "0.5")
    assert shown["weights"] == {
        "name": "weights", "type": "numpy.ndarray", "size": 48, "shape": "(3, 4) float32",
        "text": "[0, 1, 2, 3, 4, 5, …]",
    }  # fmt: skip
    assert (shown["names"]["shape"], shown["names"]["text"]) == ("[1000]", "['a', 'a', 'a', 'a', 'a', 'a', …]")
    assert shown["batch"]["text"] == "x" * 200
    # Modules, functions and classes only repeat the program's text.
    assert answer["frames"][1]["variables"] == []


def test_a_released_program_ends_with_its_own_exit_code(replica: Replica) -> None:
    held(begun(replica))
    assert called(replica.directory, {"call": "release"}) == {"ok": True, "released": True}
    replica.wait()
    report = replica.portal.last_report()
    assert (report["phase"], report["code"]) == ("exited", 1)
    assert "ValueError: no such step in train.py line 10" in report["why"]
    assert phases(replica)[-3:] == ["held", "released", "exited"]


def test_a_hold_ends_with_its_time(replica: Replica) -> None:
    begun(replica, seconds=1).wait()
    assert (phases(replica)[-3:], replica.portal.last_report()["code"]) == (["held", "released", "exited"], 1)


def test_a_request_to_stop_ends_a_hold_at_once(replica: Replica) -> None:
    ignores = """
        import signal
        signal.signal(signal.SIGTERM, lambda *_: None)
        raise ValueError
    """
    held(begun(replica, ignores, GRACE_SECONDS=60))
    assert replica.process is not None
    os.kill(replica.process.pid, signal.SIGTERM)
    replica.wait(60)
    assert phases(replica)[-3:] == ["held", "released", "exited"]


def test_a_hold_can_be_requested_for_a_running_program(replica: Replica) -> None:
    waits = """
        import pathlib, time
        print("up", flush=True)
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
        raise KeyError("late")
    """
    begun(replica, waits, seconds=0)
    until("it runs", lambda: "up" in replica.portal.texts("stdout"))
    assert called(replica.directory, {"call": "hold", "seconds": 60}) == {"ok": True, "held": False}
    (replica.directory / "work" / "go").touch()
    held(replica)
    # Less time than has passed would release it at once.
    assert called(replica.directory, {"call": "hold", "seconds": 0}) == {"ok": True, "held": True}
    replica.wait()


@pytest.mark.parametrize("seconds", [-1, 14_401, True, "60", None, 1.5])
def test_an_impossible_length_is_refused(replica: Replica, seconds: Any) -> None:
    held(begun(replica))
    assert called(replica.directory, {"call": "hold", "seconds": seconds})["code"] == "invalid"


def test_a_program_that_is_not_held_has_no_variables_and_cannot_be_released(replica: Replica) -> None:
    begun(replica, "import time; print('up', flush=True); time.sleep(600)")
    until("it runs", lambda: "up" in replica.portal.texts("stdout"))
    assert called(replica.directory, {"call": "variables"})["code"] == "not_held"
    assert called(replica.directory, {"call": "release"}) == {"ok": True, "released": False}


@pytest.mark.parametrize(
    "script",
    [
        "raise SystemExit(3)",
        "raise KeyboardInterrupt",
        "import os\nif os.fork() == 0:\n    raise ValueError\nos.wait()",
        "import threading\nthreading.Thread(target=lambda: 1 / 0).start()",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'raise ValueError'])",
    ],
    ids=["exit", "interrupt", "fork", "thread", "subprocess"],
)
def test_only_the_exception_of_the_program_itself_is_held(replica: Replica, script: str) -> None:
    replica.run(script, CONTROL_KEY=KEY.decode(), HOLD=600)
    assert "held" not in phases(replica)


def test_a_program_in_a_shell_is_held(replica: Replica) -> None:
    held(begun(replica, "raise ValueError", command=("sh", "-c", f"{sys.executable} train.py; true")))


def test_a_hostile_description_does_not_delay_the_answer_or_end_the_agent(replica: Replica) -> None:
    hostile = """
        class Endless:
            def __repr__(self):
                while True:
                    pass
        class Raises:
            def __repr__(self):
                raise SystemExit(7)
            def __sizeof__(self):
                raise KeyboardInterrupt
        def inner():
            raises = Raises()
            huge = 10 ** 100_000
            endless = Endless()
            raise ValueError
        inner()
    """
    answer = called(held(begun(replica, hostile)).directory, {"call": "variables"})
    shown = {one["name"]: (one["size"], one["text"]) for one in answer["frames"][0]["variables"]}
    assert (shown["raises"], shown["huge"][1], answer["complete"]) == (
        (None, "<SystemExit>"), "<332193 bits>", False
    )  # fmt: skip


def test_a_process_cannot_be_held_without_end(replica: Replica) -> None:
    repeats = f"""
        import os, socket
        path = os.environ["REGATTA_INSPECTION"] + "/{holding.SOCKET_FILE}"
        for number in range(40):
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(path)
                link.sendall(b'{{"exception": "' + b"x" * 300 + b'"}}')
                print(link.recv(100).decode(), flush=True)
    """
    replica.run(repeats, CONTROL_KEY=KEY.decode(), HOLD=600)
    assert replica.portal.texts("stdout") == ["600"] * 10 + ["0"] * 30
    assert [len(one["exception"]) for one in replica.portal.reports if one["phase"] == "held"] == [100] * 10


def test_code_of_the_platform_is_not_held(replica: Replica) -> None:
    replica.run("raise ValueError", CONTROL_KEY=KEY.decode(), HOLD=600, ROLE="master", REPLICA="master-0")
    assert "held" not in phases(replica)
    assert not list((replica.directory / "tmp").glob(f"{inside.SOCKET_PREFIX}hold"))
