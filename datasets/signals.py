"""Who uses a dataset. Rooms that this one does not know answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.dispatch import Signal

from rbac.access import Actor

MOST = 20

# Sent with ``actor``, ``dataset`` (its full name) and ``most``; a receiver gives the newest ``Use`` that the actor may
# see, ``most`` at most.
asked = Signal()


@dataclass(frozen=True)
class Use:
    """A job or the like: what it is called, its page, and with which version (empty where it does not say)."""

    name: str
    address: str
    namespace: str
    owner: str
    state: str
    version: str
    began: datetime


def of(actor: Actor, dataset: str) -> list[Use]:
    """The newest uses of a dataset that the actor may see."""
    answers: list[tuple[Any, Any]] = asked.send(sender=None, actor=actor, dataset=dataset, most=MOST)
    found: list[Use] = [use for _receiver, uses in answers for use in uses]
    return sorted(found, key=lambda use: use.began, reverse=True)[:MOST]
