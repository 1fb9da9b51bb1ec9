#!/usr/bin/env python
"""Django's command line with the portal's settings."""

import os
import sys

MINIMUM_PYTHON = (3, 11)


def main() -> None:
    if sys.version_info < MINIMUM_PYTHON:
        wanted = ".".join(map(str, MINIMUM_PYTHON))
        sys.exit(f"Regatta needs Python {wanted} or newer; this is {sys.version.split()[0]} ({sys.executable}).")
    if sys.argv[1:2] == ["render-manifests"]:
        # Before Django: the command needs no settings, and reading them may create a signing key.
        from portal.deployment.command import main as render_manifests

        sys.exit(render_manifests(sys.argv[2:]))
    # Files that the portal's processes write are private: databases, keys, code and logs of all namespaces.
    os.umask(0o077)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"Regatta cannot start: {error}")


if __name__ == "__main__":
    main()
