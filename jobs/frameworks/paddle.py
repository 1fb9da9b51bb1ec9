"""Environment variables with the peers of PaddlePaddle's processes: the contract of paddle-operator 0.3.5. Pure.

Shared by all backends: the PaddleJob controller sets them for pods, the portal for processes of its own machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PORTS = 20  # consecutive ports of each process
GLOO_OFFSET = PORTS - 2  # of the rendezvous on the first parameter server

SERVER, TRAINER = "PSERVER", "TRAINER"  # TRAINING_ROLE


@dataclass(frozen=True)
class Endpoint:
    """Address of a process; ``host`` in the form that precedes a colon."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def shared_environment(
    servers: Sequence[Endpoint] | None, trainers: Sequence[Endpoint] | None, with_gloo: int = 0
) -> dict[str, str]:
    """Return the variables that all processes share. None: the job has no such role.

    ``with_gloo``: 1 gives a barrier to trainers, 2 to all processes.
    """
    variables = {"TRAINER_PORTS_NUM": str(PORTS)}
    if servers is not None:
        variables["PADDLE_PSERVERS_IP_PORT_LIST"] = listed(servers)
    if trainers is not None:
        variables["PADDLE_TRAINER_ENDPOINTS"] = listed(trainers)
        variables["PADDLE_TRAINERS"] = ",".join(trainer.host for trainer in trainers)
        variables["PADDLE_TRAINERS_NUM"] = str(len(trainers))
    if with_gloo > 0 and servers:
        variables["PADDLE_WITH_GLOO"] = str(with_gloo)
        variables["PADDLE_GLOO_RENDEZVOUS"] = "3"  # over HTTP
        variables["PADDLE_GLOO_HTTP_ENDPOINT"] = str(Endpoint(servers[0].host, servers[0].port + GLOO_OFFSET))
    return variables


def own_environment(training_role: str, index: int) -> dict[str, str]:
    """Return the variables with the role and the index of a process."""
    return {"PADDLE_TRAINER_ID": str(index), "TRAINING_ROLE": training_role, "PADDLE_TRAINING_ROLE": training_role}


def own_address(endpoint: Endpoint) -> dict[str, str]:
    """Return the variables with a process's own address, for processes that do not all use the same port."""
    return {"POD_IP": endpoint.host, "PADDLE_PORT": str(endpoint.port)}


def listed(endpoints: Sequence[Endpoint]) -> str:
    return ",".join(map(str, endpoints))
