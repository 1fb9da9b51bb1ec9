"""Protection of the portal's files from other accounts of this machine.

``manage.py`` sets the umask. This module makes and repairs the data directory at start, and checks the files of an
operator: ``manage.py check --deploy`` warns, and the start prints a line.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Tags, Warning, register

DIRECTORY_MODE = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# The place of a service's settings in deploy/README.md; REGATTA_ENVIRONMENT_FILE names another one.
ENVIRONMENT_FILE = "/etc/regatta/production.env"


def secrets_of(data: Path) -> tuple[Path, ...]:
    """Return the files that hold passwords, sessions or keys."""
    database = data / "regatta.sqlite3"
    written_ahead = (database.with_name(f"{database.name}{ending}") for ending in ("-wal", "-shm"))
    environment = Path(os.environ.get("REGATTA_ENVIRONMENT_FILE", ENVIRONMENT_FILE))
    return (data / "secret-key", database, *written_ahead, environment)


def repair(data: Path) -> None:
    """Make the data directory, and make it and its secret files private to the portal.

    Files of other owners stay as they are: a mounted volume, the file of settings. Raises OSError when the directory
    cannot be made.
    """
    data.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    for path, mode in open_to_others(data):
        if path.is_relative_to(data):
            with contextlib.suppress(OSError):
                path.chmod(mode & ~_OTHERS)


def open_to_others(data: Path) -> Iterator[tuple[Path, int]]:
    """Yield the paths that others can read or write, each with its mode. Paths that cannot be read are skipped."""
    for path in (data, *secrets_of(data)):
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & _OTHERS:
            yield path, mode


@register(Tags.security, deploy=True)
def check_modes(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """Return a warning for each path that others on this machine can read or write."""
    return [
        Warning(
            f"{path} has mode {mode:04o}: other accounts of this machine can use it.",
            hint=f"Run chmod {mode & ~_OTHERS:o} {path}",
            id="regatta.W001",
        )
        for path, mode in open_to_others(settings.DATA_DIR)
    ]
