"""A migrated database for each state of the migrations: made once, then copied for each worker of each test run.

Migrating an empty database takes about five seconds, copying a migrated one less than a tenth of a second. SQLite keeps
its files in ``build/test-databases`` of the checkout, PostgreSQL has a database in the same server, which it copies as
a template. Migrations of a copy run as usual, so that one which is missing in the copy would still be applied.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import django
from django.apps import apps
from django.db import connection
from django.test.utils import setup_databases, teardown_databases

ROOT = Path(__file__).resolve().parent.parent
DIRECTORY = ROOT / "build" / "test-databases"
_MAKING = "regatta_migrating"


def sources() -> list[Path]:
    """Return all files that decide what a migrated database contains.

    These are the migrations of all installed apps and the project's modules that they import.
    """
    directories = (Path(app.path) / "migrations" for app in apps.get_app_configs())
    migrations = [path for directory in directories for path in sorted(directory.rglob("*.py"))]
    imported = {module for path in migrations if path.is_relative_to(ROOT) for module in _imported(path)}
    return [*migrations, *sorted(imported.difference(migrations))]


def _imported(path: Path) -> Iterator[Path]:
    """Yield the files of the modules of the project that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
        for name in names:
            module = ROOT.joinpath(*name.split("."))
            yield from (file for file in (module.with_suffix(".py"), module / "__init__.py") if file.is_file())


def fingerprint(paths: Iterable[Path]) -> str:
    """Return a hash of the names and contents of files, and of Django's version."""
    digest = hashlib.sha256(django.get_version().encode())
    for path in paths:
        content = path.read_bytes()
        digest.update(f"\0{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:32]


def provide() -> None:
    """Make the test database of the settings as a copy of a migrated database.

    Raises NotImplementedError if the database is neither SQLite nor PostgreSQL.
    """
    target = str(connection.settings_dict["TEST"]["NAME"] or f"test_{connection.settings_dict['NAME']}")
    if connection.vendor == "sqlite":
        provide_file(DIRECTORY, fingerprint(sources()), Path(target), _migrate)
    elif connection.vendor == "postgresql":
        _provide_in_server(f"regatta_{fingerprint(sources())}", target)
    else:
        raise NotImplementedError(connection.vendor)


def provide_for_portal(target: Path) -> None:
    """Copy a migrated SQLite file to ``target``, readable by its owner alone, for a portal in processes of its own."""
    provide_file(DIRECTORY, fingerprint(sources()), target, _migrate_in_process)
    target.chmod(0o600)


def provide_file(directory: Path, key: str, target: Path, make: Callable[[str], None]) -> None:
    """Copy the SQLite file for ``key`` in ``directory`` to ``target``.

    If there is none, it is made by ``make``, which is given its path, and the files for other keys are removed. Of
    several processes one makes it, and the others wait.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = directory / f"{key}.sqlite3"
        if not kept.exists():
            for other in directory.glob("*.sqlite3*"):
                other.unlink()
            making = directory / "making.sqlite3"
            make(str(making))
            making.rename(kept)
        for suffix in ("-wal", "-shm"):
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(kept, target)


def _migrate(name: str) -> None:
    """Create an empty database with this name, run all migrations in it, and return to the former one."""
    test = connection.settings_dict["TEST"]
    former = test["NAME"]
    test["NAME"] = name
    try:
        old = setup_databases(verbosity=0, interactive=False, serialized_aliases=())
        teardown_databases(old, verbosity=0, keepdb=True)
    finally:
        test["NAME"] = former


def _migrate_in_process(name: str) -> None:
    """Make a migrated file without this process's connection, which its tests may not use."""
    with tempfile.TemporaryDirectory(dir=Path(name).parent) as data:
        own = {key: value for key, value in os.environ.items() if not key.startswith(("REGATTA_", "DJANGO_"))}
        command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
        subprocess.run(command, cwd=ROOT, env=own | {"REGATTA_DATA_DIR": data}, check=True)
        shutil.move(Path(data) / "regatta.sqlite3", name)


def _provide_in_server(template: str, target: str) -> None:
    with _alone_in_server():
        if not _exists(template):
            _migrate(_MAKING)
            _in_server(f"ALTER DATABASE {_MAKING} RENAME TO {template}")
        _in_server(f'DROP DATABASE IF EXISTS "{target}"')
        _in_server(f'CREATE DATABASE "{target}" TEMPLATE {template}')


@contextmanager
def _alone_in_server() -> Iterator[None]:
    """Wait until no other process is in this block on the same server."""
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(hashtext('tests.migrated_database'))")
        yield  # closing the connection releases the lock


def _exists(name: str) -> bool:
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        return cursor.fetchone() is not None


def _in_server(statement: str) -> None:
    with connection._nodb_cursor() as cursor:
        cursor.execute(statement)
