"""The choice of values for a shard whose process was lost. Pure.

Every trainer holds all values as it last pulled them, so a shard is restored at most one pull old. The newest values
are taken; those of the checkpoint if no trainer has newer ones. The state of the optimiser, which only the servers
have, always comes from the checkpoint.

In synchronous training (``strict``) a shard is only useful at the version of the other servers. That is one that
trainers have seen. If no trainer can send it, nothing in this attempt can, and the next attempt continues from the
version that all servers have saved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from runtime.messages import Message, paragraph
from runtime.messages import training as messages
from runtime.parameters.messages import NOTHING, Offer
from runtime.parameters.optimisers import Adam, Optimiser

# How long a live trainer is waited for: it may hold newer values than the others.
OFFER_SECONDS = 10.0


@dataclass(frozen=True)
class Recovered:
    """How a shard was restored: at ``version``, with the values of trainer ``giver``, or of the checkpoint if None.

    ``stored`` is the version of the checkpoint, ``NOTHING`` if there was none.
    """

    version: int
    giver: int | None
    stored: int

    def describe(self, server: int, seconds: float, optimiser: Optimiser, tables: bool) -> str:
        """Return the message for the job's timeline; ``tables``: the shard has rows of some."""
        passed = f"{seconds:.1f}"
        if self.giver is None:
            return messages.PSERVER_RECOVERED_FROM_CHECKPOINT(server=server, seconds=passed, version=self.version)
        owner = f"trainer-{self.giver}"
        text = messages.PSERVER_RECOVERED_FROM_TRAINER(
            server=server, seconds=passed, version=self.version, trainer=owner
        )
        if self.stored == NOTHING:
            return paragraph(text, *_restarted(optimiser))
        more = []
        if optimiser.slots:
            more.append(messages.OPTIMISER_RESUMES(version=self.stored))
        if tables:
            more.append(messages.TABLE_ROWS_FROM_CHECKPOINT(version=self.stored))
        return paragraph(text, *more)


def _restarted(optimiser: Optimiser) -> Sequence[Message]:
    """Return the consequences of an optimiser without its state; none if it has no state.

    Adam divides a mean of some ten gradients by the root of one of a thousand squares. Both begin at zero, and far from
    version 0 nothing corrects that: the first fills sooner, and steps are up to seven times as large meanwhile.
    """
    if not optimiser.slots:
        return ()
    reset = messages.OPTIMISER_RESET()
    if not isinstance(optimiser, Adam):
        return (reset,)
    return reset, messages.ADAM_STEPS_LARGER()


class Choice(Enum):
    """The decision about the shard."""

    WAIT = "wait"
    TRAINER = "trainer"  # the trainer ``giver`` sends its values
    CHECKPOINT = "checkpoint"
    LOST = "lost"


class Comeback:
    """Collects the offers of trainers. ``stored`` is the version of the checkpoint that the shard has."""

    def __init__(self, stored: int = NOTHING) -> None:
        self.stored = stored
        self.giver: int | None = None  # the trainer that was asked for its values
        self._offers: dict[int, Offer] = {}
        self._until: float | None = None
        self._late = False

    @property
    def reported(self) -> Collection[int]:
        """The trainers that have reported their position."""
        return self._offers.keys()

    def take(self, index: int, offer: Offer, now: float) -> None:
        self._offers[index] = offer
        self._until = now + OFFER_SECONDS if self._until is None else self._until
        if index == self.giver:
            self.giver = None  # it has not sent them yet

    def forget(self, index: int) -> None:
        """Remove a lost trainer."""
        self._offers.pop(index, None)
        if index == self.giver:
            self.giver = None

    def tick(self, now: float) -> None:
        """Stop waiting for trainers that have not reported, once their time is over."""
        self._late = self._late or (self._until is not None and now >= self._until)

    def choose(self, live: Collection[int], strict: bool) -> Choice:
        """Decide when every live trainer has reported what it holds, or the time for that is over."""
        offers = {index: offer for index, offer in self._offers.items() if index in live}
        if self.giver is not None or not offers or not (self._late or len(offers) == len(live)):
            return Choice.WAIT
        best = max(offers, key=lambda index: (offers[index].held, -index))
        held, needed = offers[best].held, max(offer.seen for offer in offers.values()) if strict else NOTHING
        if held > self.stored and held >= needed:
            self.giver = best
            return Choice.TRAINER
        known = not strict or any(offer.has_seen for offer in offers.values())
        return Choice.CHECKPOINT if known and self.stored >= max(0, needed) else Choice.LOST
