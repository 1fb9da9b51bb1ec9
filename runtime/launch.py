"""``python -m runtime.launch -- COMMAND...``: run a program written for another framework in place of this process.

It completes the variables by which the program finds its peers, waits until the parameter servers listen, notifies the
agent that the process is running, and executes the program. It runs in the job's own interpreter: standard library
only.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runtime import contract

POLL_SECONDS = 0.2
CONNECT_SECONDS = 1.0

Address = tuple[str, int]


def completed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the variables derived for this process. Variables that are set are kept."""
    make = _COMPLETIONS.get(environ.get(contract.FRAMEWORK, ""))
    return {**(make(environ) if make else {}), **environ}


def awaited(environ: Mapping[str, str]) -> list[Address]:
    """Return the servers that must listen before this process begins: all of Paddle's servers, for a Paddle trainer.

    Empty with gloo, because there the servers wait before they listen. Paddle's trainers then wait by themselves.
    """
    if environ.get("TRAINING_ROLE") != "TRAINER" or environ.get("PADDLE_WITH_GLOO", "0") != "0":
        return []
    return [_address(text) for text in _listed(environ, "PADDLE_PSERVERS_IP_PORT_LIST")]


def _paddle(environ: Mapping[str, str]) -> dict[str, str]:
    trainers = _listed(environ, "PADDLE_TRAINER_ENDPOINTS")
    index, servers = int(environ.get("PADDLE_TRAINER_ID", "0")), _listed(environ, "PADDLE_PSERVERS_IP_PORT_LIST")
    if servers:
        # Releases that have both forms of programs prefer one that parameter servers cannot run.
        return {"FLAGS_enable_pir_api": "0"}
    if index >= len(trainers):
        return {}
    # Trainers without servers train collectively. To Paddle, each is a node of its own.
    count = str(len(trainers))
    return {
        "PADDLE_MASTER": trainers[0],
        "PADDLE_CURRENT_ENDPOINT": trainers[index],
        "PADDLE_GLOBAL_RANK": str(index),
        "PADDLE_GLOBAL_SIZE": count,
        "PADDLE_LOCAL_RANK": "0",
        "PADDLE_RANK_IN_NODE": "0",
        "PADDLE_NNODES": count,
        **({} if environ.get("FLAGS_selected_gpus") else {"PADDLE_DISTRI_BACKEND": "gloo"}),
    }


def _torch(environ: Mapping[str, str]) -> dict[str, str]:
    # In a cluster the controller of PaddleJobs sets the addresses of all processes, whatever they run.
    host, _, port = next(iter(_listed(environ, "PADDLE_TRAINER_ENDPOINTS")), "").rpartition(":")
    return {
        **({"MASTER_ADDR": host.strip("[]"), "MASTER_PORT": port} if port else {}),
        "RANK": environ.get(contract.INDEX, "0"),
        "WORLD_SIZE": environ.get(contract.TRAINERS, "1"),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


_COMPLETIONS: Mapping[str, Callable[[Mapping[str, str]], dict[str, str]]] = {"paddle": _paddle, "torch": _torch}


def _listed(environ: Mapping[str, str], name: str) -> list[str]:
    return [part for part in environ.get(name, "").split(",") if part]


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


# --- The command line ------------------------------------------------------------------------------------------------
def main(arguments: Sequence[str]) -> int:
    """Execute the command in place of this process. Returns only on failure."""
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if not command:
        return _refuse("Name the program to run: python -m runtime.launch -- COMMAND...")
    environment = with_own_programs(completed(os.environ))
    _wait_for(awaited(environment))
    link = environment.pop(contract.AGENT_FD, "")
    if link:
        notify_agent(int(link))
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606  no shell is needed
    except OSError as error:
        return _refuse(f"{command[0]} cannot be started: {error.strerror or error}.")


def with_own_programs(environ: Mapping[str, str]) -> dict[str, str]:
    """Put the interpreter's directory first in PATH: it holds ``python`` and the programs that the requirements
    install."""
    own = str(Path(sys.executable).parent)
    return {**environ, "PATH": os.pathsep.join([own, *filter(None, [environ.get("PATH", "")])])}


def _wait_for(servers: Sequence[Address]) -> None:
    """Wait until all servers listen.

    There is no timeout here: the portal's own timeout ends first, and its message names the missing server.
    """
    for server in servers:
        while not _listens(server):
            time.sleep(POLL_SECONDS)


def _listens(server: Address) -> bool:
    try:
        with socket.create_connection(server, CONNECT_SECONDS):
            return True
    except OSError:
        return False


def notify_agent(descriptor: int) -> None:
    """Notify the agent that the process is running. The link then closes, so the program never sees it."""
    with socket.socket(fileno=descriptor) as link:
        hello = {"op": contract.HELLO, "address": "", "release": contract.RELEASE}
        link.sendall(json.dumps(hello).encode() + b"\n")


def _refuse(message: str) -> int:
    sys.stderr.write(message + "\n")
    return contract.EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
