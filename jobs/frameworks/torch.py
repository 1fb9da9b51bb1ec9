"""The variables by which the processes of torch.distributed find one another. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.frameworks.paddle import Endpoint

LOOPBACK = "127."


def shared_environment(trainers: Sequence[Endpoint]) -> dict[str, str]:
    """The first trainer holds the store in which all meet. On one machine gloo has to be kept from a link that leads
    out of it, and may not lead back."""
    first = trainers[0]
    variables = {"MASTER_ADDR": first.host, "MASTER_PORT": str(first.port), "WORLD_SIZE": str(len(trainers))}
    return {**variables, "GLOO_SOCKET_IFNAME": "lo"} if first.host.startswith(LOOPBACK) else variables


def own_environment(index: int) -> dict[str, str]:
    """Each process is a node of its own."""
    return {"RANK": str(index), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
