"""The supervisor with small child programs, run in a process of its own because it handles signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from portal.common.messages import requests as messages
from runtime.messages import paragraph
from tests.waiting import until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
PATIENT = (
    "import signal,sys,time; signal.signal(15, lambda *_: (print('bye'), sys.exit(0))); print('up'); time.sleep(60)"
)
STUBBORN = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(60)"
PROGRAM = """
    import sys
    from portal.supervisor import Command, Supervisor, write_line
    from runtime.isolation.syscalls import PR_SET_CHILD_SUBREAPER, prctl
    {first}
    children = {{name: Command((sys.executable, "-u", "-c", code)) for name, code in {children!r}.items()}}
    Supervisor(
        children,
        stop_order=(("worker",), ("web",)),
        is_ready=lambda: True,
        on_ready=lambda: write_line("ready"),
        interrupt=lambda: {interrupt},
    ).run()
"""


class Running:
    def __init__(self, output: Path, children: dict[str, str], interrupt: str, first: str) -> None:
        program = textwrap.dedent(PROGRAM).format(children=children, interrupt=interrupt, first=first)
        self._output = output
        with output.open("w") as file:
            self.process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=file, stderr=file)

    def text(self) -> str:
        return self._output.read_text()

    def wait_for(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        until("it comes to that", condition, seconds, story=self.text)

    def wait_for_text(self, text: str, times: int = 1) -> None:
        self.wait_for(lambda: self.text().count(text) >= times)

    def children(self) -> list[int]:
        listing = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in listing.split()]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(
        worker: str = PATIENT, web: str = PATIENT, interrupt: str = "write_line('interrupting')", first: str = ""
    ) -> Running:
        running = Running(tmp_path / "output", {"web": web, "worker": worker}, interrupt, first)
        started.append(running)
        running.wait_for_text("ready")
        running.wait_for_text("up", times=2)
        return running

    yield start
    for running in started:
        running.process.kill()
        running.process.wait()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_children_end_in_order_with_the_trainings_before_the_web(run: Callable[..., Running]) -> None:
    running = run()
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(timeout=10) == 0
    lines = [line for line in running.text().splitlines() if "bye" in line or "interrupting" in line]
    assert lines == ["worker | bye", "interrupting", "   web | bye"]


def test_a_child_that_cannot_be_started_now_is_tried_again(run: Callable[..., Running]) -> None:
    lacking = "left = [BlockingIOError(11, 'Resource temporarily unavailable')]"
    running = run(
        first=f"import subprocess; real = subprocess.Popen; {lacking}; "
        "subprocess.Popen = lambda *a, **k: (_ for _ in ()).throw(left.pop()) if left else real(*a, **k)"
    )
    assert (
        paragraph(
            messages.REPLICA_NOT_STARTED(replica="web", why="Resource temporarily unavailable."),
            messages.LAUNCH_RETRIED(),
        )
        in running.text()
    )
    assert len(running.children()) == 2


def test_a_stubborn_child_is_killed_after_its_grace(run: Callable[..., Running]) -> None:
    running = run(worker=STUBBORN)
    pids = running.children()
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(timeout=10) == 0
    assert not any(alive(pid) for pid in pids)


def test_a_second_stop_signal_kills_at_once(run: Callable[..., Running]) -> None:
    running = run(interrupt="__import__('time').sleep(30)")
    pids = running.children()
    running.process.send_signal(signal.SIGINT)
    running.wait_for_text("worker | bye")

    def is_stopped_again() -> bool:
        # For a moment a second signal counts as the same Ctrl-C.
        running.process.send_signal(signal.SIGINT)
        return "Trainings that still run go on; the next start looks after them." in running.text()

    running.wait_for(is_stopped_again)
    assert running.process.wait(timeout=10) == 128 + signal.SIGINT
    running.wait_for(lambda: not any(alive(pid) for pid in pids))


def test_an_interruption_that_never_ends_does_not_hold_up_the_end(run: Callable[..., Running]) -> None:
    running = run(interrupt="__import__('time').sleep(60)")
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(timeout=10) == 0
    assert "the next start will look after them" in running.text()


def test_an_interruption_that_fails_does_not_either(run: Callable[..., Running]) -> None:
    running = run(interrupt="1 / 0")
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(timeout=10) == 0
    assert "web | bye" in running.text()


def test_a_crashed_child_is_started_again_with_a_line(run: Callable[..., Running]) -> None:
    running = run()
    os.kill(running.children()[0], signal.SIGKILL)
    running.wait_for_text("web ended (signal SIGKILL); starting it again in 0.5 s.")
    running.wait_for_text("web | up", times=2)


def test_a_supervisor_that_is_killed_takes_its_children_with_it(run: Callable[..., Running]) -> None:
    running = run()
    pids = running.children()
    running.process.kill()
    running.wait_for(lambda: not any(alive(pid) for pid in pids))


def test_a_line_without_end_is_shown_when_its_child_ends(run: Callable[..., Running]) -> None:
    running = run(worker="import sys,time; print('up'); sys.stdout.write('last words'); sys.exit(3)")
    running.wait_for_text("worker | last words")
    running.wait_for_text("worker ended (exit code 3)")


def test_a_process_that_comes_to_the_supervisor_is_collected(run: Callable[..., Running]) -> None:
    """As the first process of a container it is the parent of every agent."""
    orphan = """import os, time
if (middle := os.fork()) == 0:
    if os.fork() == 0:
        os.write(1, b"left %d\\n" % os.getpid())
    os._exit(0)
os.waitpid(middle, 0)
print("up")
time.sleep(60)"""
    running = run(worker=orphan, first="prctl(PR_SET_CHILD_SUBREAPER, 1)")
    running.wait_for_text("worker | left ")
    pid = int(running.text().partition("worker | left ")[2].split()[0])
    running.wait_for(lambda: not Path(f"/proc/{pid}").exists())
