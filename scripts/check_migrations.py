"""Refuse migrations that stop an installation while it is upgraded from the last release.

.venv/bin/python scripts/check_migrations.py
.venv/bin/python scripts/check_migrations.py --release    # name the present version and migrations as the last release

Checked are the migrations after those in scripts/release_baseline.toml. Their SQL for PostgreSQL is read by squawk and
judged by ``migration_rules``; no server is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

import django  # noqa: E402
from django.db import migrations  # noqa: E402
from django.db.migrations.loader import MigrationLoader  # noqa: E402
from django.db.utils import ConnectionHandler  # noqa: E402

from scripts.migration_rules import LOCKS, OLD_CODE, Baseline, Problem, problems  # noqa: E402

FILE = ROOT / "scripts" / "release_baseline.toml"
_POSTGRESQL = {"ENGINE": "django.db.backends.postgresql", "NAME": "none"}
# The oldest version that the portal supports.
_VERSION = 140000


def read_baseline(text: str) -> Baseline:
    """Return the content of the file, without the columns. Raises ValueError."""
    content = tomllib.loads(text)
    if unknown := set(content) - {"version", "small", "leaves", "accepted"}:
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
    return Baseline(
        content["version"], content["leaves"], frozenset(content.get("small", ())), content.get("accepted", {})
    )


def with_columns(baseline: Baseline, loader: MigrationLoader) -> Baseline:
    """Return the baseline with the tables of its release."""
    targets = [*baseline.leaves.items(), *(leaf for leaf in loader.graph.leaf_nodes() if not _is_ours(leaf[0]))]
    models = loader.project_state(targets).apps.get_models(include_auto_created=True)
    columns = {
        model._meta.db_table: frozenset(field.column for field in model._meta.local_concrete_fields) for model in models
    }
    return replace(baseline, columns=columns)


def since(baseline: Baseline, loader: MigrationLoader) -> Iterator[migrations.Migration]:
    """Yield the project's migrations after the baseline, in the order in which they run."""
    before = {key for leaf in baseline.leaves.items() for key in loader.graph.forwards_plan(leaf)}
    done: set[tuple[str, str]] = set()
    for leaf in sorted(loader.graph.leaf_nodes()):
        for key in loader.graph.forwards_plan(leaf):
            if _is_ours(key[0]) and key not in before | done:
                done.add(key)
                yield loader.graph.nodes[key]


def _is_ours(app: str) -> bool:
    return (ROOT / app / "migrations").is_dir()


def check(migration: migrations.Migration, state: Any, baseline: Baseline) -> list[Problem]:
    """Return the problems of a migration. ``state`` is that of the project before it."""
    name = f"{migration.app_label}.{migration.name}"
    accepted = baseline.accepted.get(name, {})
    of_operations = [
        Problem(name, rule, where, OLD_CODE[rule])
        for rule, where in _operations(migration, state.clone())
        if rule not in accepted
    ]
    statements = statements_of(migration, state.clone())
    found = squawk(statements) if statements else []
    return of_operations + problems(name, statements, found, atomic=migration.atomic, baseline=baseline)


def _operations(migration: migrations.Migration, state: Any) -> Iterator[tuple[str, str]]:
    """Yield what the SQL does not show: changes of rows by Python, and fields that leave the state alone."""
    from portal.common.migrating import InBatches

    for operation in migration.operations:
        in_batches = isinstance(operation, InBatches) and not migration.atomic
        if isinstance(operation, migrations.RunPython) and not in_batches:
            yield "rows-in-python", operation.describe()
        if isinstance(operation, migrations.SeparateDatabaseAndState) and not operation.database_operations:
            for removal in operation.state_operations:
                if isinstance(removal, migrations.RemoveField):
                    model = state.models[migration.app_label, removal.model_name_lower]
                    gone = model.get_field(removal.name)
                    if not (gone.null or gone.has_db_default() or gone.many_to_many):
                        yield "removed-while-required", removal.describe()
        operation.state_forwards(migration.app_label, state)


def statements_of(migration: migrations.Migration, state: Any) -> list[str]:
    """Return the statements of a migration on PostgreSQL, each in one line."""
    connection: Any = ConnectionHandler({"default": _POSTGRESQL})["default"]
    connection.pg_version = _VERSION

    class Editor(connection.SchemaEditorClass):  # type: ignore[misc,name-defined]
        """Collects the statements without a server."""

        def execute(self, sql: Any, params: Any = ()) -> None:
            text = str(sql) % tuple(map(self.quote_value, params)) if params else str(sql)
            self.collected_sql.append(f"{text};")

        def _constraint_names(self, *given: Any, **named: Any) -> list[str]:
            return ["of_the_database"]

    with Editor(connection, collect_sql=True, atomic=False) as editor:
        migration.apply(state, editor, collect_sql=True)
    lines = (" ".join(sql.split()) for sql in editor.collected_sql)
    return [line for line in lines if not line.startswith("--")]


def squawk(statements: Sequence[str]) -> list[tuple[int, str]]:
    """Return squawk's findings for the statements: index and rule, of the rules that are in use."""
    command = [str(Path(sys.executable).with_name("squawk")), "--reporter", "json", "--no-error-on-unmatched-pattern"]
    done = subprocess.run(
        [*command[:3], "--pg-version", f"{_VERSION // 10000}.0"],
        input="\n".join(statements),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"squawk failed: {done.stderr}")
    findings = json.loads(done.stdout or "[]")
    if broken := [one["message"] for one in findings if one["rule_name"] == "syntax-error"]:
        raise RuntimeError(f"squawk cannot read the SQL: {broken}")
    return [(one["line"], one["rule_name"]) for one in findings if one["rule_name"] in {*LOCKS, *OLD_CODE}]


def released(text: str, version: str, loader: MigrationLoader) -> str:
    """Return the text of the file with another version and its last migrations."""
    leaves = [leaf for leaf in sorted(loader.graph.leaf_nodes()) if _is_ours(leaf[0])]
    named = "\n".join(f'{app} = "{name}"' for app, name in leaves)
    text = re.sub(r"^version = .*$", f'version = "{version}"', text, flags=re.M)
    return re.sub(r"^\[leaves\]\n(?:.+\n)*", f"[leaves]\n{named}\n", text, flags=re.M)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--release", action="store_true", help="write the baseline of the present version")
    is_release = arguments.parse_args().release
    django.setup()
    loader = MigrationLoader(None)
    text = FILE.read_text(encoding="utf-8")
    if is_release:
        from portal.common.version import VERSION

        FILE.write_text(released(text, VERSION, loader), encoding="utf-8")
        return 0
    baseline = with_columns(read_baseline(text), loader)
    checked = list(since(baseline, loader))
    found = [
        problem
        for migration in checked
        for problem in check(migration, loader.project_state((migration.app_label, migration.name), False), baseline)
    ]
    for problem in found:
        print(problem)
    if not found:
        print(f"{len(checked)} migrations since {baseline.version} allow its code to run and hold no long lock.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
