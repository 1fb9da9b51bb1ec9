"""The steps that wait for a version in synchronous training, and the trainers that wait to begin a pass. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.pserver.requests import Step, Ticket
from runtime.pserver.state.eager_update import Coming
from runtime.pserver.steps.barrier import Barrier

# The index of a trainer, its ticket, and its step.
Waiting = tuple[int, Ticket, Step]


class StepQueue:
    """At most one step of each trainer, and the entries that ``barrier`` has not admitted yet.

    A ticket leaves the queue once: with the version of its step, as late, as superseded, or with its trainer.
    """

    def __init__(self, barrier: Barrier) -> None:
        self._barrier = barrier
        self._entering: dict[Ticket, int] = {}
        self._pushed: dict[int, tuple[Ticket, Step]] = {}

    @property
    def waiting(self) -> list[int]:
        """The trainers whose step waits."""
        return list(self._pushed)

    # --- Entries -----------------------------------------------------------------------------------------------------
    def enter(self, ticket: Ticket, index: int, number: int, version: int) -> None:
        """Trainer ``index`` begins pass ``number`` at this version."""
        self._barrier.begin(index, number, version, forming=bool(self._pushed))
        self._entering[ticket] = index

    def entry_of(self, index: int) -> Ticket | None:
        """The ticket with which a trainer waits to begin a pass."""
        return next((ticket for ticket, other in self._entering.items() if other == index), None)

    def repeat_entry(self, earlier: Ticket, ticket: Ticket) -> None:
        """Answer ``ticket`` instead of ``earlier``."""
        self._entering[ticket] = self._entering.pop(earlier)

    def admit(self, version: int) -> list[Ticket]:
        """Remove the entries that may pull and compute at this version."""
        due = [ticket for ticket, index in self._entering.items() if self._barrier.may_enter(index, version)]
        for ticket in due:
            del self._entering[ticket]
        return due

    # --- Steps -------------------------------------------------------------------------------------------------------
    def push(self, index: int, ticket: Ticket, step: Step) -> Ticket | None:
        """Add a step; return the ticket of the same trainer's step that it replaces."""
        earlier = self._pushed.get(index)
        self._pushed[index] = (ticket, step)
        return earlier[0] if earlier else None

    def take(self, version: int) -> list[Waiting]:
        """Remove the steps that make the version after ``version``, in order of summation; empty while it must wait."""
        return [(index, *self._pushed.pop(index)) for index in self._barrier.contributors(version, self._pushed)]

    def take_late(self, version: int) -> list[Waiting]:
        """Remove the steps for a version that was made without them."""
        late = [index for index, (_ticket, step) in self._pushed.items() if step.base != version]
        return [(index, *self._pushed.pop(index)) for index in late]

    def members(self, version: int, coming: Mapping[int, Coming]) -> list[Coming]:
        """The steps of the next version if all that are being received are completed; empty if it is too early."""
        contributors = self._barrier.contributors(version, coming.keys() | self._pushed.keys())
        empty = {index for index, (_ticket, step) in self._pushed.items() if not step.samples}
        members = [index for index in contributors if index not in empty]
        return [coming[index] for index in members] if all(index in coming for index in members) else []

    # --- Trainers ----------------------------------------------------------------------------------------------------
    def admit_newcomers(self, version: int) -> None:
        """Wait for newcomers at once if no step waits for the version after ``version``."""
        if not self._pushed:
            self._barrier.admit_all(version)

    def forget(self, index: int) -> tuple[list[Ticket], list[Ticket]]:
        """Remove a lost trainer; return the tickets of its entries and of its step."""
        entries = [ticket for ticket, other in self._entering.items() if other == index]
        for ticket in entries:
            del self._entering[ticket]
        return entries, [self._pushed.pop(index)[0]] if index in self._pushed else []
