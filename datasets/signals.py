"""Uses of a dataset, as reported by other apps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.dispatch import Signal

from rbac.access import Actor

MOST = 20

# Sent with ``actor``, ``dataset`` (its full name) and ``most``. A receiver returns the newest ``Use`` objects that the
# actor may see, at most ``most``.
asked = Signal()


@dataclass(frozen=True)
class Use:
    """Use of a dataset, such as a job: its name, its page, and the version (empty if not specified)."""

    name: str
    address: str
    namespace: str
    owner: str
    state: str
    version: str
    began: datetime


def of(actor: Actor, dataset: str) -> list[Use]:
    """Return the newest uses of a dataset that the actor may see."""
    answers: list[tuple[Any, Any]] = asked.send(sender=None, actor=actor, dataset=dataset, most=MOST)
    found: list[Use] = [use for _receiver, uses in answers for use in uses]
    return sorted(found, key=lambda use: use.began, reverse=True)[:MOST]
