"""Events of a training. ``job.on(EndPass, function)`` subscribes to one kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Event:
    """The base class of the events; a subscription to it receives all."""

    pass_id: int


@dataclass(frozen=True)
class BeginPass(Event):
    """A pass through the data begins."""


@dataclass(frozen=True)
class BeginIteration(Event):
    """A batch was read. ``batch_id`` counts this trainer's batches of the pass from 0."""

    batch_id: int


@dataclass(frozen=True)
class EndIteration(Event):
    """A batch has been processed. ``cost`` and ``metrics`` were reported meanwhile; NaN and empty if nothing was."""

    batch_id: int
    cost: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EndPass(Event):
    """This trainer has nothing more to do in the pass. ``metrics`` are the last reported."""

    metrics: Mapping[str, float] = field(default_factory=dict)


Handler = Callable[[Event], object]


class Listeners:
    """The subscriptions to events."""

    def __init__(self) -> None:
        self._handlers: list[tuple[type[Event], Handler]] = []

    def on(self, kind: type[Event], handler: Handler) -> None:
        self._handlers.append((kind, handler))

    def notify(self, event: Event) -> None:
        for kind, handler in self._handlers:
            if isinstance(event, kind):
                handler(event)
