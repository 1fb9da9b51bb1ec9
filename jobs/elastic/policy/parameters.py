"""What the policy of elastic jobs may be told to do differently. Plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Times in seconds. ``head_start``: of age, that each step of a priority is worth. ``preempts``: whether jobs are
    stopped whole for others, which the platform does not do: there the quota calls back what was lent, and nothing else
    stops a job for another. ``shortest_run``: not before they have run for so long. ``patience``: who has waited for
    longer lets no later job pass. ``slack``: by what part of its fair share a job may be above or below it before
    others are made to shrink. ``head_room``: what part of the largest recent growth of a service is kept free for the
    next, for ``head_room_for`` seconds. ``depth``: how many newcomers that do not fit are searched room for."""

    cool_down: float = 30.0
    preempts: bool = False
    shortest_run: float = 60.0
    patience: float = 4 * 3600.0
    head_start: float = 3600.0
    slack: float = 0.1
    headroom: float = 0.05
    headroom_for: float = 120.0
    depth: int = 50


RULES = Rules()
