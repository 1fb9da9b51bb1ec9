"""Sinks of measured values: the agent's channel, or the terminal if the process runs alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Protocol

from runtime.agent_channel import Channel
from runtime.errors import UsageError
from runtime.messages import training as messages

PRINT_SECONDS = 0.5


class Sink(Protocol):
    """Receives the values of one step."""

    def take(self, at: float, step: int, values: Mapping[str, float]) -> None: ...


class ChannelSink:
    """Passes points to the agent; the channel sends them from a thread of its own."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def take(self, at: float, step: int, values: Mapping[str, float]) -> None:
        self._channel.metrics((at, step, key, value) for key, value in values.items())


class TerminalSink:
    """Prints a line every half second, for a script that runs alone in a terminal."""

    def __init__(self, write: Callable[[str], object] = sys.stdout.write) -> None:
        self._write = write
        self._next = 0.0

    def take(self, at: float, step: int, values: Mapping[str, float]) -> None:
        if at >= self._next:
            self._next = at + PRINT_SECONDS
            text = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
            self._write(f"step {step}: {text}\n")


class Reports:
    """Checks reported values and adds the step: ``version()`` if there are parameters, else a count."""

    def __init__(self, sink: Sink, version: Callable[[], int | None], clock: Callable[[], float] = time.time) -> None:
        self._sink = sink
        self._version = version
        self._clock = clock
        self._count = 0
        self.last: dict[str, float] = {}

    def report(self, values: Mapping[str, object]) -> None:
        """Take values by name. Raises UsageError for a value that is no number."""
        numbers = {name: _number(name, value) for name, value in values.items()}
        self._count += 1
        self.last.update(numbers)
        self._sink.take(self._clock(), self.step(), numbers)

    def step(self) -> int:
        """Return the present step."""
        version = self._version()
        return self._count if version is None else version


def _number(name: str, value: object) -> float:
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "size", 0) == 1:
        value = item()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UsageError(messages.REPORT_VALUE_INVALID(name=name, value=f"{value!r} ({type(value).__name__})"))
    return float(value)
