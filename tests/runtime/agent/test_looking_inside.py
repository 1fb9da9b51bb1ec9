"""Stacks, samples and objects of whole replicas under their agents."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.agent.control.stacks import is_full
from runtime.inspection import inside
from tests.runtime.agent.conftest import Replica
from tests.runtime.agent.test_control import KEY, called
from tests.waiting import until

pytestmark = pytest.mark.processes

WAITS = """
    import threading, time
    def inner():
        print("up", flush=True)
        time.sleep(600)
    def outer():
        inner()
    threading.Thread(target=time.sleep, args=(600,), name="helper", daemon=True).start()
    outer()
"""


def begun(replica: Replica, script: str, **variables: Any) -> Replica:
    replica.start(script, CONTROL_KEY=KEY.decode(), **variables)
    until("it runs", lambda: "up" in replica.portal.texts("stdout"), story=lambda: str(replica.portal.texts("stderr")))
    return replica


def stacks(replica: Replica) -> dict[str, Any]:
    return called(replica.directory, {"call": "stacks"})


def functions(answer: dict[str, Any], name: str = "MainThread") -> list[str]:
    (thread,) = [one for one in answer["threads"] if one["name"] == name]
    return [frame["function"] for frame in thread["frames"]]


def child_of(replica: Replica) -> int:
    """Return the process that runs the script."""
    assert replica.process is not None
    pid = replica.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def test_the_threads_of_a_program_are_shown_with_file_line_and_function(replica: Replica) -> None:
    answer = stacks(begun(replica, WAITS))
    assert (answer["ok"], answer["state"], answer["note"]) == (True, "running", "")
    assert functions(answer) == ["inner", "outer", "<module>"]
    (main,) = [one for one in answer["threads"] if one["name"] == "MainThread"]
    assert main["frames"][0] == {"file": "train.py", "line": 5, "function": "inner"}
    assert [(one["name"], one["native"]) for one in answer["threads"]] == [("MainThread", False), ("helper", False)]


def test_the_answer_says_whether_a_file_system_of_the_replica_is_full(replica: Replica) -> None:
    assert stacks(begun(replica, WAITS))["full"] is False


@pytest.mark.parametrize(
    ("free", "files", "free_files", "full"),
    [(4096, 0, 0, False), (255, 0, 0, True), (4096, 10, 0, True), (4096, 10, 1, False)],
)
def test_a_file_system_without_space_or_files_is_full(
    monkeypatch: pytest.MonkeyPatch, free: int, files: int, free_files: int, full: bool
) -> None:
    found = SimpleNamespace(f_bavail=free, f_frsize=4096, f_files=files, f_favail=free_files)
    monkeypatch.setattr(os, "statvfs", lambda directory: found)
    assert is_full(Path("/work")) is full


def test_a_stopped_process_is_reported_as_stopped_at_once(replica: Replica) -> None:
    begun(replica, WAITS)
    os.kill(child_of(replica), signal.SIGSTOP)
    answer = stacks(replica)
    assert (answer["state"], answer["note"]) == ("stopped", "stopped")


def test_a_thread_that_holds_the_interpreters_lock_in_c_is_shown_with_its_caller(replica: Replica) -> None:
    spins = """
        import re
        def spins_in_c():
            print("up", flush=True)
            re.match("(a*)*b", "a" * 60)
        spins_in_c()
    """
    answer = stacks(begun(replica, spins))
    assert (answer["state"], answer["note"]) == ("unresponsive", "lock_held")
    assert "spins_in_c" in [frame["function"] for one in answer["threads"] for frame in one["frames"]]


def test_a_program_that_took_the_signal_keeps_it_and_is_reported(replica: Replica) -> None:
    takes = f"""
        import re, signal
        signal.signal({inside.SIGNAL}, signal.SIG_IGN)
        print("up", flush=True)
        re.match("(a*)*b", "a" * 60)
    """
    answer = stacks(begun(replica, takes))
    assert (answer["state"], answer["note"]) == ("unresponsive", "signal_taken")


def test_a_forked_worker_is_shown_too(replica: Replica) -> None:
    forks = """
        import os, time
        def worker():
            time.sleep(600)
        if os.fork() == 0:
            worker()
        print("up", flush=True)
        os.wait()
    """
    answer = stacks(begun(replica, forks))
    assert answer["state"] == "running"
    assert "worker" in [frame["function"] for one in answer["threads"] for frame in one["frames"]]
    assert len({one["process"] for one in answer["threads"]}) == 2


def test_a_program_in_another_language_is_named_as_such(replica: Replica) -> None:
    replica.start("", command=("sh", "-c", "echo up; sleep 600; true"), CONTROL_KEY=KEY.decode())
    until("it runs", lambda: "up" in replica.portal.texts("stdout"))
    answer = stacks(replica)
    assert (answer["state"], answer["note"]) == ("running", "not_python")
    assert all(one["native"] for one in answer["threads"])


def test_the_program_does_not_see_what_looks_into_it(replica: Replica) -> None:
    looks = """
        import os, sys, threading
        print(threading.active_count(), "threading" in sys.modules, os.open("/dev/null", os.O_RDONLY) < 100)
        print(any("inspection" in path for path in sys.path))
    """
    replica.run(looks, CONTROL_KEY=KEY.decode())
    assert replica.portal.texts("stdout") == ["1 True True", "False"]


def test_the_programs_own_sitecustomize_still_runs(replica: Replica, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import builtins; builtins.greeting = 'hello'")
    replica.environment["REGATTA_USER_ENVIRONMENT"] = f'{{"PYTHONPATH": "{tmp_path / "own"}"}}'
    replica.run("print(greeting)", CONTROL_KEY=KEY.decode(), SANDBOX="none")
    assert replica.portal.texts("stdout") == ["hello"]


def test_a_hostile_process_that_answers_nonsense_is_shown_without_it(replica: Replica) -> None:
    lies = f"""
        import os, socket, time
        place = os.path.join(os.environ["TMPDIR"], "{inside.SOCKET_PREFIX}%d" % os.getpid())
        os.unlink(place)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(place)
        listener.listen()
        print("up", flush=True)
        link, _ = listener.accept()
        link.recv(1000)
        link.sendall(b'{{"threads": [1, {{"frames": [[1, 2], ["f", "line", "g"], 7], "name": 5}}], "signal": 1}}')
        link.close()
        time.sleep(600)
    """
    answer = stacks(begun(replica, lies))
    assert answer["ok"]
    assert [one["frames"] for one in answer["threads"] if not one["native"]] == [[]]


def test_a_link_in_place_of_the_socket_is_not_followed(replica: Replica, tmp_path: Path) -> None:
    links = f"""
        import os, time
        place = os.path.join(os.environ["TMPDIR"], "{inside.SOCKET_PREFIX}%d" % os.getpid())
        os.rename(place, place + ".real")
        os.symlink(place + ".real", place)
        print("up", flush=True)
        time.sleep(600)
    """
    answer = stacks(begun(replica, links))
    assert answer["note"] != "no_answer"
    assert "MainThread" not in [one["name"] for one in answer["threads"]], "asked by the signal instead"


def test_a_recording_counts_the_function_that_takes_the_time(replica: Replica) -> None:
    spins = """
        def busy():
            while True:
                pass
        def main():
            print("up", flush=True)
            busy()
        main()
    """
    answer = called(begun(replica, spins).directory, {"call": "samples", "seconds": 0.5})
    (stack, count), *_ = answer["stacks"].items()
    assert stack == "MainThread;<module> (train.py);main (train.py);busy (train.py)"
    assert count >= 10


@pytest.mark.parametrize("seconds", [0, -1, 1e9, "1", None])
def test_a_recording_of_an_impossible_length_is_refused(replica: Replica, seconds: object) -> None:
    answer = called(begun(replica, WAITS).directory, {"call": "samples", "seconds": seconds})
    assert answer["code"] == "invalid"


def test_objects_are_counted_by_type(replica: Replica) -> None:
    keeps = """
        import time
        class Row: pass
        rows = [Row() for _ in range(5000)]
        print("up", flush=True)
        time.sleep(600)
    """
    (process,) = called(begun(replica, keeps).directory, {"call": "objects"})["processes"]
    assert {"type": "__main__.Row", "count": 5000} in process["types"]
    assert process["resident"] > 2**20
