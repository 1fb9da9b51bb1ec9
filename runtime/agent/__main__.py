"""``python -m runtime.agent -- COMMAND...``: run one replica, configured by the environment.

With ``--deliver`` in place of a command, only send the entries that an agent which is gone has left in its spools.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from runtime import contract
from runtime.agent import settings
from runtime.agent.supervisor import STOP_SIGNALS, AlreadyRunning, Supervisor

DELIVER = "--deliver"


def main(arguments: Sequence[str]) -> int:
    """Run the command to its end. Return the exit code of the agent, not of the command."""
    command = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if not command:
        return _refuse("Name the command to run: python -m runtime.agent -- COMMAND...")
    # One thread waits for these signals. They are blocked before any thread starts, so that no other is interrupted.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    for number in STOP_SIGNALS:
        # The parent may have ignored the signal, and an ignored signal cannot be waited for.
        signal.signal(number, signal.SIG_DFL)
    try:
        configuration = settings.read(os.environ)
    except KeyError as missing:
        return _refuse(f"{missing.args[0]} is not set; the agent is configured by runtime.contract's variables.")
    except ValueError as misread:
        return _refuse(f"A variable of the contract could not be read: {misread}.")
    if list(arguments) == [DELIVER]:
        from runtime.agent.delivery.redelivery import deliver

        return deliver(configuration)
    try:
        return Supervisor(configuration, command).run()
    except AlreadyRunning as running:
        return _refuse(str(running))


def _refuse(message: str) -> int:
    sys.stderr.write(message + "\n")
    return contract.EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
