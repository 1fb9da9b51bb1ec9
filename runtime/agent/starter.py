"""``python -m runtime.agent.starter DESCRIPTOR``: start several agents from one interpreter.

Most of the cost of starting an agent is the import of its modules. They are imported once. Each agent is a fork in a
session of its own, with the environment, the lock and the log that the order names. The descriptor holds the orders, a
marshalled list (``contract.AgentOrder``), so that no secret is in an environment that /proc shows.
"""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from runtime import contract
from runtime.agent import __main__ as agent
from runtime.contract import AgentOrder
from runtime.isolation import network

# Imported for the forks, which all need them.
from runtime.agent import membership, pipes  # noqa: F401  isort: skip
from runtime.agent.control import server  # noqa: F401  isort: skip
from runtime.agent.delivery import ingest_client, shipping  # noqa: F401  isort: skip


def main(orders: Sequence[AgentOrder]) -> int:
    """Fork all agents. In each fork, return the agent's exit code."""
    try:
        _join_network([order for order in orders if contract.NETWORK in order["environment"]])
    except OSError as error:
        sys.stderr.write(f"No agent was started: {error}.\n")
        return contract.EXIT_ERROR
    for order in orders:
        if os.fork() == 0:
            _become(order, orders)
            return agent.main(order["arguments"])
    return 0


def _join_network(orders: Sequence[AgentOrder]) -> None:
    """Join the network of the attempt, once for all agents, which inherit its descriptors. Raises OSError."""
    if orders:
        kind = orders[0]["environment"][contract.NETWORK]
        joined = network.join(Path(orders[0]["directory"]).parent, kind == "user")
        for order in orders:
            order["environment"][contract.NETWORK_FDS] = ",".join(map(str, joined))


def _become(order: AgentOrder, orders: Sequence[AgentOrder]) -> None:
    os.setsid()
    os.chdir(order["directory"])
    for number in (1, 2):
        os.dup2(order["log"], number)
    for other in orders:
        os.close(other["log"])
        if other is not order:
            os.close(other["lock"])  # otherwise it would be held after the end of its own agent
    os.environ.clear()
    os.environ.update(order["environment"])


def _read(descriptor: int) -> list[AgentOrder]:
    with os.fdopen(descriptor, "rb") as file:
        orders: list[AgentOrder] = marshal.load(file)  # noqa: S302  written by the backend, for this process only
    return orders


if __name__ == "__main__":
    sys.exit(main(_read(int(sys.argv[1]))))
