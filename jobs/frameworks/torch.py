"""Environment variables with the peers of torch.distributed's processes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.frameworks.paddle import Endpoint

LOOPBACK = "127."


def shared_environment(trainers: Sequence[Endpoint]) -> dict[str, str]:
    """Return the variables that all trainers share; the first trainer runs the rendezvous store.

    On one machine gloo must use the loopback interface: another one may not route back to the machine.
    """
    first = trainers[0]
    variables = {"MASTER_ADDR": first.host, "MASTER_PORT": str(first.port), "WORLD_SIZE": str(len(trainers))}
    return {**variables, "GLOO_SOCKET_IFNAME": "lo"} if first.host.startswith(LOOPBACK) else variables


def own_environment(index: int) -> dict[str, str]:
    """Return the variables of one process; each process is a separate node."""
    return {"RANK": str(index), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
