"""The reader of a process's output continues whatever happens to the lines."""

from __future__ import annotations

import os

import pytest

from runtime.agent.pipes import PipeReader


class FailsOnce:
    """Sink that fails for the first lines."""

    def __init__(self) -> None:
        self.failed = False
        self.lines: list[str] = []

    def __call__(self, at: float, name: str, lines: list[str]) -> None:
        if not self.failed:
            self.failed = True
            raise MemoryError
        self.lines += lines


def test_lines_that_cannot_be_taken_in_stop_no_later_ones(capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    sink = FailsOnce()
    reader = PipeReader({reading: "stdout"}, sink)
    os.write(writing, b"first\n")
    assert reader._read(reading)
    os.write(writing, b"second\n")
    os.close(writing)
    reader.start()
    reader.drain(5)
    assert sink.lines == ["second"]
    assert "Lines of stdout could not be taken in" in capsys.readouterr().err
