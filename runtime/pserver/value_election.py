"""The election of the trainer that sends values: the first ones, or those of a shard whose process was lost. Pure."""

from __future__ import annotations

from runtime.messages import paragraph
from runtime.messages import training as messages
from runtime.parameters.messages import NOTHING, Offer, Outcome
from runtime.pserver.recovery import Choice, Comeback, Recovered
from runtime.pserver.requests import Release, Releases, Ticket, TrainerId
from runtime.pserver.steps.barrier import Barrier


class ValueElection:
    """The declarations that wait for values of server ``server``, and the choice of where the values come from.

    A declaration waits until there are values, until its trainer is asked to send them, or until they are lost; it is
    answered once. While values are ``recovering`` they are not ``ready``, and at most one trainer is asked for them.
    """

    def __init__(self, server: int, barrier: Barrier) -> None:
        self.ready = False  # whether there are values
        self.recovered: Recovered | None = None  # how the values were restored
        self.lost = ""  # why they cannot be restored
        self._server = server
        self._barrier = barrier
        self._declaring: dict[Ticket, TrainerId] = {}
        self._comeback: Comeback | None = None  # set while the values are lost

    @property
    def recovering(self) -> bool:
        """Whether values are lost and are to be restored."""
        return self._comeback is not None

    @property
    def giver(self) -> int | None:
        """The trainer that was asked for the values that were lost."""
        return self._comeback.giver if self._comeback is not None else None

    def declare(self, ticket: Ticket, trainer: TrainerId) -> None:
        """Add a declaration that waits for its answer."""
        self._declaring[ticket] = trainer

    def take_offer(self, index: int, offer: Offer, now: float) -> None:
        """Take what a trainer can send, while values are recovering."""
        if self._comeback is not None:
            self._comeback.take(index, offer, now)

    def forget(self, index: int) -> list[Ticket]:
        """Remove a lost trainer, and return the tickets of its declarations."""
        if self._comeback is not None:
            self._comeback.forget(index)
        tickets = [ticket for ticket, trainer in self._declaring.items() if trainer.index == index]
        for ticket in tickets:
            del self._declaring[ticket]
        return tickets

    def begin_recovery(self, stored: int = NOTHING) -> None:
        """Wait for values from trainers, or else use those of the checkpoint of version ``stored``."""
        self.ready = False
        self._comeback = Comeback(stored)
        self._barrier.forget_launch()

    def tick(self, now: float) -> None:
        """Stop waiting for trainers that offer nothing, once their time is over."""
        if self._comeback is not None:
            self._comeback.tick(now)

    def elect(self, version: int, strict: bool) -> Releases:
        """Answer the declarations that can be answered. The lowest trainer that is due or declares sends the values."""
        if self._comeback is not None:
            return self._choose(self._comeback, version, strict)
        if self.ready:
            return self._answer(Outcome.READY, version)
        first = min({trainer.index for trainer in self._declaring.values()} | set(self._barrier.due), default=None)
        return self._answer(Outcome.INITIALISE, version, first)

    def _choose(self, comeback: Comeback, version: int, strict: bool) -> Releases:
        choice = comeback.choose(self._barrier.live, strict)
        if choice is Choice.TRAINER:
            return self._answer(Outcome.RESEED, version, comeback.giver)
        if choice is Choice.CHECKPOINT:
            return self.end_recovery(version)
        if choice is Choice.LOST:
            kept = (
                messages.ONLY_VALUES_OF_VERSION(version=comeback.stored)
                if comeback.stored > NOTHING
                else messages.NO_VALUES()
            )
            return self.lose(
                paragraph(
                    messages.PSERVER_VALUES_LOST(server=self._server, kept=kept), messages.RESUMES_FROM_COMMON_STATE()
                ),
                version,
            )
        return []

    def end_recovery(self, version: int) -> Releases:
        """Continue with restored values, which are those of ``version``."""
        assert self._comeback is not None  # noqa: S101  values are recovering
        self.recovered = Recovered(version, self._comeback.giver, self._comeback.stored)
        reported, self._comeback, self.ready = self._comeback.reported, None, True
        self._barrier.await_all_but(reported)
        return self._answer(Outcome.READY, version)

    def lose(self, why: str, version: int) -> Releases:
        """Record that the values cannot be restored in this attempt."""
        self.lost = why
        return self._answer(Outcome.LOST, version, why=why)

    def _answer(self, outcome: Outcome, version: int, index: int | None = None, why: str = "") -> Releases:
        """Answer the declarations of one trainer, or of all."""
        chosen = [ticket for ticket, trainer in self._declaring.items() if index in (None, trainer.index)]
        for ticket in chosen:
            del self._declaring[ticket]
        return [Release(ticket, outcome, version, why) for ticket in chosen]
