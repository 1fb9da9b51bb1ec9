"""Entry point of a container: what it fetches, and its termination message."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from runtime import contract
from runtime.messages import from_json
from runtime.messages import training as messages
from tests.runtime.agent.ingest_server import IngestServer
from tests.waiting import until

pytestmark = pytest.mark.processes

PROJECT = Path(contract.__file__).parent.parent
ENTRY = ("-m", "runtime.agent.pod_entrypoint")
# The same with less patience.
_HASTY = """
import sys
from runtime.agent import pod_entrypoint
pod_entrypoint.NUMBERS_PATIENCE = 0.1
sys.exit(pod_entrypoint.main(sys.argv[1:]))
"""
HASTY = ("-c", _HASTY)
Start = Callable[..., "subprocess.Popen[bytes]"]


def archive(**files: str) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.replace("__", "/") + ".py")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return target.getvalue()


@pytest.fixture
def termination_message(tmp_path: Path) -> Callable[[], dict[str, Any]]:
    def read() -> dict[str, Any]:
        message = json.loads((tmp_path / "word").read_text())
        return {**message, "why": from_json(message["why"])}

    return read


@pytest.fixture
def start(tmp_path: Path, portal: IngestServer) -> Iterator[Start]:
    begun: list[subprocess.Popen[bytes]] = []

    def run(script: str = "", entry: Sequence[str] = ENTRY, **variables: str) -> subprocess.Popen[bytes]:
        if script:
            portal.given["code"] = archive(train=script, lib__help="answer = 42")
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(PROJECT),
            contract.JOB_ID: "job",
            contract.ATTEMPT_ID: "attempt",
            contract.ROLE: contract.TRAINER,
            contract.REPLICA: "trainer-0",
            contract.INGEST_URL: portal.url,
            contract.INGEST_TOKEN: "secret-token",
            contract.COORDINATION: f"sqlite:///{tmp_path / 'store.sqlite3'}",
            contract.REPLICA_DIR: str(tmp_path / "workspace"),
            contract.TERMINATION_FILE: str(tmp_path / "word"),
            **{getattr(contract, name): value for name, value in variables.items()},
        }
        command = [sys.executable, *entry, "--", sys.executable, "train.py"]
        begun.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, start_new_session=True))
        return begun[-1]

    yield run
    for process in begun:
        process.kill()
        process.wait()
        process.stderr.close()  # type: ignore[union-attr]


def test_the_code_comes_from_the_portal(start: Start, portal: IngestServer) -> None:
    assert start("from lib.help import answer\nprint(answer)").wait(60) == 0
    assert portal.texts("stdout") == ["42"]


def test_code_of_the_image_is_copied_and_not_fetched(start: Start, portal: IngestServer, tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "train.py").write_text("open('train.py', 'a').write('#'); print('here')")
    assert start(CODE_DIR=str(tmp_path / "image")).wait(60) == 0
    assert portal.texts("stdout") == ["here"]
    assert not (tmp_path / "image" / "train.py").read_text().endswith("#")


def test_the_dataset_comes_from_the_portal(start: Start, portal: IngestServer, tmp_path: Path) -> None:
    portal.given["data"] = b'{"files": [{"path": "public/mine/a b.csv", "size": 3}]}'
    portal.given["data/public/mine/a%20b.csv"] = b"1,2"
    data = tmp_path / "data"
    script = f"print(open('{data}/public/mine/a b.csv').read())"
    assert start(script, FETCH_DATA=str(data), DATA_PATH=str(data)).wait(60) == 0
    assert portal.texts("stdout") == ["1,2"]


def test_numbering_continues_after_the_entries_of_earlier_starts(start: Start, portal: IngestServer) -> None:
    portal.taken["logs"] = [[0.0, "stdout", "of the earlier start"]]
    assert start("print('of this one')", START_NUMBER="2").wait(60) == 0
    assert portal.texts("stdout") == ["of the earlier start", "of this one"]


def test_the_exit_code_is_that_of_the_command(start: Start, termination_message: Callable[[], dict[str, Any]]) -> None:
    assert start("raise SystemExit(7)").wait(60) == 7
    assert termination_message() == {
        "start_number": 1,
        "code": 7,
        "signal": None,
        "out_of_memory": False,
        "delivered": True,
        "why": messages.EXITED(code=7),
    }


def test_a_command_that_is_killed_ends_the_container_as_a_shell_would(
    start: Start, termination_message: Callable[[], dict[str, Any]]
) -> None:
    assert start("import os; os.kill(os.getpid(), 9)").wait(60) == 137
    assert termination_message()["signal"] == 9


def test_a_portal_that_is_away_is_waited_for(start: Start, portal: IngestServer) -> None:
    portal.go_away()
    process = start("print('after all')")
    line = process.stderr.readline()  # type: ignore[union-attr]
    assert b"the portal did not answer" in line
    portal.come_back()
    assert process.wait(60) == 0
    assert portal.texts("stdout") == ["after all"]


@pytest.mark.invariant("A replica that was restarted starts without the portal if its image has the code.")
def test_a_later_start_begins_without_the_portal_and_continues_its_numbering_afterwards(
    start: Start, portal: IngestServer, tmp_path: Path
) -> None:
    portal.taken["logs"] = [[0.0, "stdout", "of start 1"]]
    portal.go_away()
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "train.py").write_text("print('of start 2'); open('ran', 'w').close()")
    process = start(entry=HASTY, CODE_DIR=str(tmp_path / "image"), START_NUMBER="2")
    until("the process has run", (tmp_path / "workspace" / "work" / "ran").exists)
    portal.come_back()
    assert process.wait(60) == 0
    assert portal.texts("stdout") == ["of start 1", "of start 2"]


def test_a_later_start_of_an_attempt_that_is_over_does_not_begin(
    start: Start, portal: IngestServer, tmp_path: Path
) -> None:
    portal.stale = True
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "train.py").write_text("open('ran', 'w').close()")
    start(entry=HASTY, CODE_DIR=str(tmp_path / "image"), START_NUMBER="2").wait(60)
    assert not (tmp_path / "workspace" / "work" / "ran").exists()


def test_a_replica_stopped_before_it_began_does_not_begin(
    start: Start, portal: IngestServer, termination_message: Callable[[], dict[str, Any]]
) -> None:
    portal.go_away()
    process = start("print('never')")
    process.stderr.readline()  # type: ignore[union-attr]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert termination_message()["why"] == messages.STOPPED_BEFORE_START()


def test_a_process_that_ends_on_request_is_not_finished(
    start: Start, portal: IngestServer, termination_message: Callable[[], dict[str, Any]]
) -> None:
    """A node that is drained asks too. A server that leaves in order must not look as if all work is done."""
    script = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(60)"
    )
    process = start(script)
    portal.wait_until(lambda: "up" in portal.texts())
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == contract.EXIT_RESTART
    assert (termination_message()["code"], termination_message()["why"]) == (contract.EXIT_RESTART, messages.STOPPED())


TAKES_ITS_TIME = """
import signal, sys, time
def end(*_):
    time.sleep(1.5)
    print("all is written", flush=True)
    sys.exit(3)
signal.signal(15, end)
print("up", flush=True)
time.sleep(60)
"""


def test_the_portal_sets_the_grace_period(
    start: Start, portal: IngestServer, termination_message: Callable[[], dict[str, Any]]
) -> None:
    """A replica that has to return tasks gets more time than others. Only the portal can decide which replicas do."""
    portal.given["stop"] = b'{"grace": 60}'
    process = start(TAKES_ITS_TIME, GRACE_SECONDS="0.2")
    portal.wait_until(lambda: "up" in portal.texts())
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 3
    assert "all is written" in portal.texts()


@pytest.mark.parametrize("answer", [None, b"", b"{}", b'{"grace": null}', b'{"grace": "long"}'])
def test_without_an_answer_from_the_portal_the_default_grace_applies(
    start: Start, portal: IngestServer, termination_message: Callable[[], dict[str, Any]], answer: bytes | None
) -> None:
    if answer is not None:
        portal.given["stop"] = answer
    process = start(TAKES_ITS_TIME.replace("1.5", "60"), GRACE_SECONDS="0.2")
    portal.wait_until(lambda: "up" in portal.texts())
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 137
    assert termination_message()["why"] == "did not stop when it was asked to, and was killed"


def test_an_attempt_that_is_over_begins_nothing(
    start: Start, portal: IngestServer, termination_message: Callable[[], dict[str, Any]]
) -> None:
    portal.stale = True
    assert start("print('never')").wait(60) == 143
    assert (portal.texts(), termination_message()["why"]) == ([], messages.STOPPED_BEFORE_START())


def test_where_processes_of_other_hosts_find_one() -> None:
    assert contract.own_address({}) == "127.0.0.1"
    assert contract.own_address({contract.ADDRESS: "10.1.2.3"}) == "10.1.2.3"
