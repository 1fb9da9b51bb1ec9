"""Runs an agent on the network of an attempt, like the starter: ``python -m tests.networked DIRECTORY KIND
COMMAND...``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from runtime import contract
from runtime.isolation import network


def main(directory: str, kind: str, command: list[str]) -> None:
    joined = network.join(Path(directory), kind == "user")
    for descriptor in joined:
        if descriptor >= 0:
            os.set_inheritable(descriptor, True)
    os.environ.update({contract.NETWORK: kind, contract.NETWORK_FDS: ",".join(map(str, joined))})
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
