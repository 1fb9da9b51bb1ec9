"""``python -m bench.load.portal_process serve|work|sweep``: a process of the portal with the simulated backend.

LOAD_BACKEND is the socket of ``bench.load.replicas``. Everything else is the portal's own: commands, settings, servers.
"""

from __future__ import annotations

import os
import sys

from bench.load.simulated_backend import NAME, SimulatedBackend

SOCKET_VARIABLE = "LOAD_BACKEND"


def use_simulated_backend(path: str) -> None:
    """Make the portal in this process use the simulated backend. Django must be set up."""
    from django.conf import settings

    from jobs.backends import factory

    backend = SimulatedBackend(path)
    factory.BACKENDS = {NAME: lambda: backend}
    settings.CLUSTER_BACKEND = NAME


def main(command: str) -> None:
    os.umask(0o077)
    import django

    django.setup()
    from django.core.management import call_command

    use_simulated_backend(os.environ[SOCKET_VARIABLE])
    call_command(command)


if __name__ == "__main__":
    main(sys.argv[1])
