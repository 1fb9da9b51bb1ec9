"""The agent's questions to processes whose answers and descriptors are hostile."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from runtime.agent.control import asking, processes
from runtime.agent.control.processes import Process
from runtime.inspection import inside
from tests.waiting import let_pass, until


def test_a_file_put_in_place_of_the_memory_file_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process can exchange its descriptors between the search for the memory file and its opening."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    read_only = os.open(precious, os.O_RDONLY)
    found = Path(f"/proc/self/fd/{read_only}")
    monkeypatch.setattr(processes, "memory_file", lambda process: found)
    process = Process(os.getpid(), os.getpid(), "python", "S", 0, 1 << (inside.SIGNAL - 1))
    monkeypatch.setattr(processes, "send_signal", lambda process: precious.write_text("kept and written"))
    try:
        with pytest.raises(asking.NotInspectable):
            asking.dump(process, 0.1)
    finally:
        os.close(read_only)
    assert precious.read_text() == "kept"


ANSWER = json.dumps({"types": ["x" * 1000] * 1000}).encode()


@contextmanager
def answering(temporary: Path, answer: bytes) -> Iterator[Process]:
    """A process that gives this answer to each question."""
    process = Process(os.getpid(), os.getpid(), "python", "S", 0, 0)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(temporary / f"{inside.SOCKET_PREFIX}{process.inner}"))
        listening.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    link, _ = listening.accept()
                    with link, suppress(OSError):
                        link.recv(1024)
                        link.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield process
        listening.shutdown(socket.SHUT_RDWR)


def test_answers_beyond_the_memory_for_all_of_them_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_memory", asking._Memory(2 * len(ANSWER)))
    with answering(tmp_path, ANSWER) as process:
        monkeypatch.setattr(asking, "_parsing", HeldUntilRefused())
        outcomes = in_threads(3, lambda: asking.ask(tmp_path, process, {}, 20.0, len))
    assert sorted(outcomes) == ["1", "1", "NoAnswer"]


def test_memory_of_an_answer_that_was_read_is_free_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_memory", asking._Memory(len(ANSWER)))
    with answering(tmp_path, ANSWER) as process:
        assert [asking.ask(tmp_path, process, {}, 20.0, len) for _ in range(3)] == [1, 1, 1]


def test_one_answer_is_parsed_at_a_time(tmp_path: Path) -> None:
    parsing, most = [0], [0]

    def read(document: dict[str, Any]) -> None:
        parsing[0] += 1
        most[0] = max(most[0], parsing[0])
        let_pass(0.05)
        parsing[0] -= 1

    with answering(tmp_path, ANSWER) as process:
        in_threads(4, lambda: asking.ask(tmp_path, process, {}, 20.0, read))
    assert most == [1]


class HeldUntilRefused:
    """A lock that lets nobody parse until one of the threads has been refused."""

    def __enter__(self) -> None:
        until("one was refused", lambda: refusals, 60)

    def __exit__(self, *_: object) -> None:
        return


refusals: list[str] = []


def in_threads(count: int, work: Callable[[], object]) -> list[str]:
    """Return what each thread returned, as text, or the name of its exception."""
    outcomes: list[str] = []
    refusals.clear()

    def run() -> None:
        try:
            outcomes.append(str(work()))
        except asking.NoAnswer:
            refusals.append("NoAnswer")
            outcomes.append("NoAnswer")

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes
