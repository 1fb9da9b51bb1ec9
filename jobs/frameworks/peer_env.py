"""Environment variables of each process of a plan with the addresses of the others. Pure.

A plan contains no addresses: the local backend finds free ports, and a cluster has names for its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jobs.frameworks import paddle, torch
from jobs.frameworks.definitions import PADDLE, TORCH
from jobs.frameworks.paddle import Endpoint

# The address of a process with the first of its ports, by role and index.
Places = Mapping[tuple[str, int], Endpoint]
Environments = Mapping[tuple[str, int], Mapping[str, str]]

TRAINER, PSERVER = "trainer", "pserver"  # runtime.contract
# Number of consecutive ports that each process of a framework gets for its peers.
PORTS: Mapping[str, int] = {PADDLE: paddle.PORTS, TORCH: 1}
# Barriers of trainers. Paddle programs rely on them when they save a model or compare measurements.
WITH_GLOO = 1

_TRAINING_ROLES = {TRAINER: paddle.TRAINER, PSERVER: paddle.SERVER}


def environments(framework: str, places: Places) -> Environments:
    """Return the variables of every process of ``places``; empty for a framework that needs none."""
    make = _MAKERS.get(framework)
    return make(places) if make else {}


def _paddle(places: Places) -> Environments:
    all_ = paddle.shared_environment(_of(PSERVER, places) or None, _of(TRAINER, places), WITH_GLOO)
    return {
        (role, index): {**all_, **paddle.own_environment(_TRAINING_ROLES[role], index), **paddle.own_address(place)}
        for (role, index), place in places.items()
    }


def _torch(places: Places) -> Environments:
    all_ = torch.shared_environment(_of(TRAINER, places))
    return {(role, index): {**all_, **torch.own_environment(index)} for role, index in places}


def _of(role: str, places: Places) -> list[Endpoint]:
    return [places[key] for key in sorted(places) if key[0] == role]


_MAKERS: Mapping[str, Callable[[Places], Environments]] = {PADDLE: _paddle, TORCH: _torch}
