"""Assignment of tasks: the live trainers, the hand (assigned tasks) of each, and the free tasks. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from runtime.master.messages import Trainer
from runtime.master.queue.task_states import Board
from runtime.master.types import Assignment, Status

# After this many failures of one trainer alone, a task is given to other trainers first.
_FAILURES_BEFORE_OTHERS = 2

# Puts a task back, given its number and the trainer that had it.
Place = Callable[[int, Trainer | None], None]


@dataclass
class Assigner:
    """The assignment of todo tasks.

    ``hands`` holds the todo tasks assigned to each trainer, ``free`` those without an owner. ``last_contact`` is the
    time of each trainer's last request. ``assignment_changed`` is true if hands, ``free`` or ``live``
    changed in another way than by taking a task.
    """

    board: Board
    free: deque[int] = field(default_factory=deque)
    hands: dict[Trainer, deque[int]] = field(default_factory=dict)
    live: tuple[Trainer, ...] = ()
    last_contact: dict[Trainer, float] = field(default_factory=dict)
    assignment_changed: bool = False

    def restore(self, assignment: Assignment) -> None:
        """Restore the committed assignment."""
        self.free = self._still_todo(assignment.free)
        self.hands = {trainer: self._still_todo(hand) for trainer, hand in assignment.hands}

    def begin_pass(self, now: float) -> None:
        """Make all tasks of the table free."""
        self.free = deque(range(len(self.board.table.tasks)))
        self.hands = {}
        self.assignment_changed = True
        self.last_contact = dict.fromkeys(self.live, now)

    def strike_done(self) -> None:
        """Keep only todo tasks in the hands."""
        self.free = self._still_todo(self.free)
        self.hands = {trainer: self._still_todo(hand) for trainer, hand in self.hands.items()}

    def assignment(self) -> Assignment:
        hands = tuple((owner, tuple(hand)) for owner, hand in self.hands.items())
        return Assignment(self.live, tuple(self.free), hands, tuple(self.board.parts))

    @property
    def empty(self) -> bool:
        """Whether no task is todo."""
        return not self.free and not any(self.hands.values())

    @property
    def left(self) -> int:
        """The number of todo tasks."""
        return len(self.free) + sum(map(len, self.hands.values()))

    def members(self, live: Collection[Trainer], now: float) -> None:
        self.live, self.assignment_changed = tuple(sorted(live)), True
        self.last_contact = {trainer: self.last_contact.get(trainer, now) for trainer in self.live}

    # --- Taking and putting back -------------------------------------------------------------------------------------
    def take(self, trainer: Trainer) -> int | None:
        """Remove the next task for this trainer from the queue and return it; None if there is none."""
        found = self._next_for(trainer)
        if found is None:
            return None
        queue, task_id = found
        queue.remove(task_id)
        return task_id

    def has_for(self, trainer: Trainer) -> bool:
        """Whether there is a task for this trainer."""
        return self._next_for(trainer) is not None

    def _next_for(self, trainer: Trainer) -> tuple[deque[int], int] | None:
        for queue in (self.hands.get(trainer), self.free) if trainer in self.live else ():
            task_id = next((i for i in queue or () if not self.barred(i, trainer)), None)
            if queue is not None and task_id is not None:
                return queue, task_id
        return None

    def barred(self, task_id: int, trainer: Trainer) -> bool:
        """Whether other trainers should try first: only this one failed on it, often, and another one is alive."""
        entry = self.board.entries[task_id]
        return (
            entry.blamed == (trainer.index,)
            and entry.failures >= (1 if self.board.is_part(task_id) else _FAILURES_BEFORE_OTHERS)
            and any(other.index != trainer.index for other in self.live)
        )

    def to_tail(self, task_id: int, holder: Trainer | None) -> None:
        self._queue_for(task_id, holder).append(task_id)
        self.assignment_changed = True

    def to_head(self, task_id: int, holder: Trainer | None) -> None:
        self._queue_for(task_id, holder).appendleft(task_id)
        self.assignment_changed = True

    def _queue_for(self, task_id: int, holder: Trainer | None) -> deque[int]:
        """The holder's hand, if it exists and the task may stay in it; otherwise the free tasks."""
        if holder is None or holder not in self.hands or self.barred(task_id, holder):
            return self.free
        return self.hands[holder]

    def _still_todo(self, tasks: Iterable[int]) -> deque[int]:
        return deque(i for i in tasks if self.board.entries[i].status is Status.TODO)

    # --- Hands -------------------------------------------------------------------------------------------------------
    def free_tasks_of_the_gone(self) -> None:
        for trainer in [trainer for trainer in self.hands if trainer not in self.live]:
            self.free.extendleft(reversed(self.hands.pop(trainer)))

    def silent(self, trainer: Trainer, now: float, patience: float) -> bool:
        return self.last_contact[trainer] + patience <= now

    def free_tasks_of_the_silent(self, now: float, patience: float) -> tuple[Trainer, ...]:
        """Free the hands of trainers without contact for ``patience`` seconds, if another is active.

        Return these trainers.
        """
        silent = tuple(owner for owner, hand in self.hands.items() if hand and self.silent(owner, now, patience))
        if not self._awake(now, patience):
            return ()
        for trainer in silent:
            self.free.extend(self.hands.pop(trainer))
            self.assignment_changed = True
        return silent

    def assign_free(self, now: float, patience: float) -> None:
        """Assign every free task to a live trainer, in turn; none to a trainer that is barred from it or silent."""
        kept: deque[int] = deque()
        live = self._awake(now, patience) or self.live
        for turn, task_id in enumerate(self.free):
            takers = [trainer for trainer in live if not self.barred(task_id, trainer)]
            if takers:
                self.hands.setdefault(takers[turn % len(takers)], deque()).append(task_id)
            else:
                kept.append(task_id)
        self.assignment_changed = self.assignment_changed or len(kept) < len(self.free)
        self.free = kept

    def share_with(self, newcomer: Trainer) -> None:
        """Give a newcomer as many tasks as the others have, so that nobody waits longer than necessary."""
        hand = self.hands.setdefault(newcomer, deque())
        fair = sum(map(len, self.hands.values())) // len(self.live)
        while len(hand) < fair:
            longest = max(self.hands.values(), key=len)
            task_id = next((i for i in reversed(longest) if not self.barred(i, newcomer)), None)
            if longest is hand or task_id is None:
                break
            longest.remove(task_id)
            hand.appendleft(task_id)
        self.assignment_changed = True

    def _awake(self, now: float, patience: float) -> tuple[Trainer, ...]:
        return tuple(trainer for trainer in self.live if not self.silent(trainer, now, patience))
