"""The trainers that a version waits for in synchronous training. Pure.

Each trainer reports its position. It begins a pass before its first push of that pass. It ends the pass after its last
push, or as soon as it has nothing to push for now; it may then begin the same pass again. The next version is made of
the pushes of the lowest pass that a trainer is in, and waits for

- every trainer in that pass to push,
- every trainer that has not ended that pass to begin (and then push) or end it,
- at the very start, the trainers that the attempt was launched with.

A trainer that begins a pass may enter when no push of an earlier pass can come any more. The version that it pulls then
stays the newest until it pushes.

A trainer whose lease is gone is no longer waited for. One that begins while others already wait for a version is waited
for from the next version on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from runtime.parameters.messages import NEVER


@dataclass
class _Place:
    """The position of a trainer. ``since`` is the first version that waits for it."""

    begun: int = NEVER
    ended: int = NEVER
    since: int = 0

    @property
    def active(self) -> bool:
        return self.begun > self.ended

    def is_before(self, number: int) -> bool:
        """Whether it may still push in a pass before ``number``."""
        return self.begun < number if self.active else self.ended < number - 1


class Barrier:
    """``expected`` trainers are waited for at the start. ``quorum`` pushes make a version; 0: all of them."""

    def __init__(self, expected: int, quorum: int = 0) -> None:
        self.quorum = quorum
        self.start_by: float | None = None  # when absent trainers are not waited for any more
        self._live: dict[int, int] = {}
        self._due = set(range(expected))
        self._unreported: set[int] = set()
        self._places: dict[int, _Place] = {}

    @property
    def live(self) -> Mapping[int, int]:
        """Incarnation of each live trainer by its index."""
        return self._live

    @property
    def due(self) -> Collection[int]:
        """The trainers of the launch that have not begun yet."""
        return self._due

    def change_members(self, live: Mapping[int, int]) -> set[int]:
        """Set the live trainers' incarnations; return the indices of those that left or were replaced."""
        gone = {index for index, incarnation in self._live.items() if live.get(index) != incarnation}
        self._live = dict(live)
        for index in gone:
            self._places.pop(index, None)
        self._due -= gone
        self._unreported -= gone
        return gone

    def start_without_absent(self, now: float) -> bool:
        """Stop waiting for trainers that never came, once ``start_by`` is over; return whether that is now."""
        if self.start_by is None or now < self.start_by:
            return False
        self.start_by = None
        self._due &= self._live.keys()
        self._unreported.clear()
        return True

    # --- A server restarted in the middle of an attempt ---------------------------------------------------------------
    def forget_launch(self) -> None:
        """The attempt is already running: trainers that have not come by now are not waited for."""
        self._due.clear()

    def await_all_but(self, reported: Collection[int]) -> None:
        """Wait for the positions of all live trainers outside ``reported``, before any version or entry."""
        self._unreported = self._live.keys() - reported

    def position_reported(self, index: int) -> None:
        """Trainer ``index`` has reported its position, or that it is new."""
        self._unreported.discard(index)

    def place(self, index: int, begun: int, ended: int, version: int) -> None:
        """Set the position of trainer ``index``: it has begun pass ``begun`` and ended pass ``ended``."""
        self._due.discard(index)
        self._places[index] = _Place(begun, ended, version)

    def begin(self, index: int, number: int, version: int, forming: bool) -> None:
        """Trainer ``index`` begins pass ``number``.

        ``version`` is the present one; ``forming`` is whether pushes for the next one already wait.
        """
        place = self._places.get(index)
        if place is None:
            expected = index in self._due
            place = self._places[index] = _Place(since=version + 1 if forming and not expected else version)
        self._due.discard(index)
        place.begun, place.ended = number, number - 1

    def end(self, index: int, number: int) -> None:
        """Trainer ``index`` has nothing more to push in pass ``number`` for now; ``FOREVER``: in any pass."""
        self._due.discard(index)
        place = self._places.setdefault(index, _Place())
        place.begun = place.ended = max(place.ended, number)

    def is_active(self, index: int) -> bool:
        return index in self._places and self._places[index].active

    def admit_all(self, version: int) -> None:
        """No push waits any more for the version after ``version``: newcomers are waited for at once."""
        for place in self._places.values():
            place.since = min(place.since, version)

    def may_enter(self, index: int, version: int) -> bool:
        """Whether a trainer that has begun a pass may pull and compute: the next version then waits for it."""
        place = self._places[index]
        return (
            place.since <= version
            and not self._unreported
            and not any(other.is_before(place.begun) for other in self._places.values())
        )

    def contributors(self, version: int, pushed: Collection[int]) -> list[int]:
        """The trainers whose pushes make the version after ``version``, in order of index; empty while it must wait."""
        awaited = {index: place for index, place in self._places.items() if place.since <= version}
        active = [place.begun for place in awaited.values() if place.active]
        if self._due or self._unreported or not active:
            return []
        current = min(active)
        taking_part = sorted(index for index, place in awaited.items() if place.active and place.begun == current)
        ready = [index for index in taking_part if index in pushed]
        if self.quorum and len(ready) >= min(self.quorum, len(taking_part)):
            return ready
        undecided = any(not place.active and place.ended < current for place in awaited.values())
        return ready if ready == taking_part and not undecided else []
