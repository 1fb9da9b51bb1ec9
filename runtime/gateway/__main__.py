"""``python -m runtime.gateway -- COMMAND...``: run a program of any language as a trainer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from runtime import contract, dist
from runtime.errors import RegattaError
from runtime.gateway.http_server import Service
from runtime.gateway.session import Desk

POLL_SECONDS = 0.2


def main(arguments: Sequence[str]) -> int:
    """Run the command to its end. Exit codes as in the contract."""
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if not command:
        return _refuse("Name the program to run: python -m runtime.gateway -- COMMAND...")
    stop_requests: list[str] = []
    job = dist.init()

    def leaving() -> str:
        return job.why_leave() or "".join(stop_requests[:1])

    _also_on_sigterm(lambda: stop_requests.append("it was asked to end (SIGTERM)"))
    try:
        desk = Desk(job, job.source())
    except RegattaError as error:
        return _refuse(str(error))
    service = Service(desk, leaving)
    service.start()
    try:
        return _run(command, desk, service, leaving)
    finally:
        service.close()


def _run(command: Sequence[str], desk: Desk, service: Service, leaving: Callable[[], str]) -> int:
    withheld = (contract.AGENT_FD, contract.WIRE_SECRET)
    environment = {name: value for name, value in os.environ.items() if name not in withheld}
    try:
        program = subprocess.Popen(command, env={**environment, contract.GATEWAY: service.address})
    except OSError as error:
        return _refuse(f"{command[0]} cannot be started: {error.strerror or error}.")
    signalled = False
    while True:
        with suppress(subprocess.TimeoutExpired):
            return _end(program.wait(POLL_SECONDS), desk, leaving())
        if leaving() and not signalled:
            signalled = True
            program.terminate()
            with suppress(RegattaError):
                desk.close(leaving=True)


def _end(code: int, desk: Desk, why: str) -> int:
    """Report the meaning of the program's exit code. Return the exit code of this process."""
    restart = bool(why) or code == contract.EXIT_RESTART
    failed = "" if restart or code == 0 else f"The program ended with exit code {code}."
    with suppress(RegattaError):
        desk.close(failed, leaving=restart)
    if restart:
        return contract.EXIT_RESTART
    return contract.EXIT_ERROR if failed else contract.EXIT_OK


def _also_on_sigterm(act: Callable[[], object]) -> None:
    """Call ``act`` on SIGTERM, before the handler that is installed already."""
    before = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: Any) -> None:
        act()
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGTERM, handle)


def _refuse(message: str) -> int:
    sys.stderr.write(message + "\n")
    return contract.EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
