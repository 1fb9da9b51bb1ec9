"""``python -m runtime.launch -- COMMAND...``: become a program that was written for another framework.

It completes the variables by which the program finds the others, waits until the parameter servers listen, tells the
agent that the process is there, and becomes the program. The interpreter is the job's own: standard library only.
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
    """The environment with what follows from it for this process; what is said already stays."""
    make = _COMPLETIONS.get(environ.get(contract.FRAMEWORK, ""))
    return {**(make(environ) if make else {}), **environ}


def awaited(environ: Mapping[str, str]) -> list[Address]:
    """The servers that have to listen before this process begins: all of Paddle's, for a trainer of theirs.

    None where they meet through gloo, for which servers wait before they listen: Paddle's trainers wait by themselves.
    """
    if environ.get("TRAINING_ROLE") != "TRAINER" or environ.get("PADDLE_WITH_GLOO", "0") != "0":
        return []
    return [_address(text) for text in _listed(environ, "PADDLE_PSERVERS_IP_PORT_LIST")]


def _paddle(environ: Mapping[str, str]) -> dict[str, str]:
    trainers = _listed(environ, "PADDLE_TRAINER_ENDPOINTS")
    index, servers = int(environ.get("PADDLE_TRAINER_ID", "0")), _listed(environ, "PADDLE_PSERVERS_IP_PORT_LIST")
    if servers:
        # Releases that have both prefer a form of programs that parameter servers cannot run.
        return {"FLAGS_enable_pir_api": "0"}
    if index >= len(trainers):
        return {}
    # Trainers alone train collectively. Each is a node of its own, as far as Paddle is concerned.
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
    # In a cluster the controller of PaddleJobs tells where everybody is, whatever they run.
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


# --- The thin shell --------------------------------------------------------------------------------------------------
def main(arguments: Sequence[str]) -> int:
    """Become the command. Returns only where that cannot be."""
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if not command:
        return _refuse("Name the program to run: python -m runtime.launch -- COMMAND...")
    environment = _with_own_programs(completed(os.environ))
    _wait_for(awaited(environment))
    link = environment.pop(contract.AGENT_FD, "")
    if link:
        _notify_agent(int(link))
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606  no shell is wanted
    except OSError as error:
        return _refuse(f"{command[0]} cannot be started: {error.strerror or error}.")


def _with_own_programs(environ: Mapping[str, str]) -> dict[str, str]:
    """``python`` and what the requirements have installed are found by their names."""
    own = str(Path(sys.executable).parent)
    return {**environ, "PATH": os.pathsep.join([own, *filter(None, [environ.get("PATH", "")])])}


def _wait_for(servers: Sequence[Address]) -> None:
    """Until all of them listen. If that never happens, the portal's own patience ends first and it says for whom."""
    for server in servers:
        while not _listens(server):
            time.sleep(POLL_SECONDS)


def _listens(server: Address) -> bool:
    try:
        with socket.create_connection(server, CONNECT_SECONDS):
            return True
    except OSError:
        return False


def _notify_agent(descriptor: int) -> None:
    """The process is there. The link then closes: the program knows nothing of it."""
    with socket.socket(fileno=descriptor) as link:
        hello = {"op": contract.HELLO, "address": "", "release": contract.RELEASE}
        link.sendall(json.dumps(hello).encode() + b"\n")


def _refuse(message: str) -> int:
    sys.stderr.write(message + "\n")
    return contract.EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
