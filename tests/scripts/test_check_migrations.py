"""Migrations that would stop an installation during its upgrade are refused, with what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from portal.common.migrating import (
    AddCheckNotValid,
    AddIndexConcurrently,
    AddUniqueConcurrently,
    InBatches,
    ValidateCheck,
)
from scripts import check_migrations
from scripts.migration_rules import LOCKS, OLD_CODE, Baseline, Problem

NEXT = "tests.portal.database.next_release.jobs_migrations"
CHECK = models.CheckConstraint(condition=models.Q(attempt__gte=1), name="attempts_begin_with_one")
USER = "rbac.user"


@pytest.fixture(scope="module")
def loader() -> MigrationLoader:
    return MigrationLoader(None)


@pytest.fixture(scope="module")
def baseline(loader: MigrationLoader) -> Baseline:
    """The present schema, as if it were released."""
    text = check_migrations.released(check_migrations.FILE.read_text(encoding="utf-8"), "1.0.0", loader)
    return check_migrations.with_columns(check_migrations.read_baseline(text), loader)


@pytest.fixture(scope="module")
def state(loader: MigrationLoader) -> Any:
    return loader.project_state(loader.graph.leaf_nodes())


def migration_of(*operations: Operation, atomic: bool = True) -> migrations.Migration:
    made = migrations.Migration("9000_test", "jobs")
    made.operations, made.atomic = list(operations), atomic
    return made


def alone(*operations: Operation) -> migrations.Migration:
    return migration_of(*operations, atomic=False)


def state_only(*operations: Operation) -> Operation:
    return migrations.SeparateDatabaseAndState(state_operations=list(operations))


def rules(found: Sequence[Problem]) -> set[str]:
    return {problem.rule for problem in found}


def nothing(*_: Any) -> None:
    """Change no row."""


REFUSED = {
    "an index that blocks writers": (
        migration_of(migrations.AddIndex("job", models.Index(fields=["changed"], name="job_changed"))),
        {"require-concurrent-index-creation"},
    ),
    "a foreign key with its index": (
        migration_of(
            migrations.AddField(
                "job", "reviewer", models.ForeignKey(USER, models.SET_NULL, null=True, related_name="+")
            )
        ),
        {"require-concurrent-index-creation"},
    ),
    "a check of all rows": (migration_of(migrations.AddConstraint("job", CHECK)), {"constraint-missing-not-valid"}),
    "a unique constraint": (
        migration_of(
            migrations.AddConstraint("attempt", models.UniqueConstraint(fields=["token_digest"], name="one_token"))
        ),
        {"constraint-missing-not-valid", "disallowed-unique-constraint"},
    ),
    "a column that becomes required": (
        migration_of(migrations.AlterField("job", "started", models.DateTimeField(default=nothing))),
        {"adding-not-nullable-field", "rows-in-one-statement"},
    ),
    "another type": (
        migration_of(migrations.AlterField("job", "attempt", models.BigIntegerField(default=1))),
        {"changing-column-type", "several-alterations"},
    ),
    "a default that the database does not know": (
        migration_of(migrations.AddField("job", "note", models.TextField(default=""))),
        {"no-database-default", "several-alterations"},
    ),
    "two columns in one transaction": (
        migration_of(
            migrations.AddField("job", "one", models.IntegerField(null=True)),
            migrations.AddField("job", "two", models.IntegerField(null=True)),
        ),
        {"several-alterations"},
    ),
    "a removed column": (migration_of(migrations.RemoveField("job", "rehearsal")), {"ban-drop-column"}),
    "a removed table": (migration_of(migrations.DeleteModel("FailedTask")), {"ban-drop-table"}),
    "a renamed column": (migration_of(migrations.RenameField("job", "why", "because")), {"renaming-column"}),
    "a renamed table": (migration_of(migrations.AlterModelTable("FailedTask", "failures")), {"renaming-table"}),
    "rows in Python": (migration_of(migrations.RunPython(nothing)), {"rows-in-python"}),
    "batches in one transaction": (migration_of(InBatches("jobs", "job", nothing)), {"rows-in-python"}),
    "rows in one statement": (
        migration_of(migrations.RunSQL("UPDATE \"jobs_job\" SET reason = ''")),
        {"rows-in-one-statement"},
    ),
    "a scan behind a lock": (
        migration_of(AddCheckNotValid("job", CHECK), ValidateCheck("job", CHECK.name)),
        {"scan-in-transaction", "several-alterations"},
    ),
    "a required column that leaves the state": (
        migration_of(state_only(migrations.RemoveField("job", "requeues"))),
        {"removed-while-required"},
    ),
}
ALLOWED = {
    "a new table with indexes": migration_of(
        migrations.CreateModel(
            "Note",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("job", models.ForeignKey("jobs.job", models.CASCADE)),
                ("text", models.TextField(db_index=True)),
            ],
        ),
        migrations.AddIndex("note", models.Index(fields=["job", "text"], name="note_text")),
    ),
    "a default of the database": migration_of(migrations.AddField("job", "note", models.TextField(db_default=""))),
    "a concurrent index": alone(AddIndexConcurrently("job", models.Index(fields=["changed"], name="job_changed"))),
    "a unique index first": alone(
        AddUniqueConcurrently("attempt", models.UniqueConstraint(fields=["token_digest"], name="one_token"))
    ),
    "a check of new rows": migration_of(AddCheckNotValid("job", CHECK)),
    "a scan of its own": migration_of(ValidateCheck("job", CHECK.name)),
    "batches": alone(InBatches("jobs", "job", nothing)),
    "an optional column that leaves the state": migration_of(state_only(migrations.RemoveField("job", "rehearsal"))),
    "a type on a small table": migration_of(migrations.AlterField("elastic", "cores", models.IntegerField(null=True))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_stops_queries_or_the_last_release_is_refused(
    name: str, loader: MigrationLoader, baseline: Baseline, state: Any
) -> None:
    migration, expected = REFUSED[name]
    assert rules(check_migrations.check(migration, state, baseline)) == expected


@pytest.mark.parametrize("name", ALLOWED)
def test_what_does_not_is_allowed(name: str, baseline: Baseline, state: Any) -> None:
    assert check_migrations.check(ALLOWED[name], state, baseline) == []


def test_a_column_that_the_last_release_has_left_may_be_dropped(baseline: Baseline, state: Any) -> None:
    columns = {**baseline.columns, "jobs_job": baseline.columns["jobs_job"] - {"rehearsal"}}
    removal = migration_of(migrations.RemoveField("job", "rehearsal"))
    assert check_migrations.check(removal, state, replace(baseline, columns=columns)) == []


def test_an_accepted_rule_is_not_reported(baseline: Baseline, state: Any) -> None:
    accepting = replace(baseline, accepted={"jobs.9000_test": {"ban-drop-table": "nobody has it"}})
    assert check_migrations.check(migration_of(migrations.DeleteModel("FailedTask")), state, accepting) == []


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / NEXT.replace(".", "/")).glob("0*.py")))
def test_the_migrations_of_the_upgrade_test_are_allowed(
    path: Path, loader: MigrationLoader, baseline: Baseline, state: Any
) -> None:
    before = state.clone()
    for earlier in sorted(path.parent.glob("0*.py")):
        migration = import_module(f"{NEXT}.{earlier.stem}").Migration(earlier.stem, "jobs")
        if earlier == path:
            assert check_migrations.check(migration, before, baseline) == []
            return
        migration.mutate_state(before, preserve=False)


def test_a_problem_says_what_to_write(baseline: Baseline, state: Any) -> None:
    (problem,) = check_migrations.check(REFUSED["an index that blocks writers"][0], state, baseline)
    assert str(problem).startswith("jobs.9000_test: require-concurrent-index-creation\n    CREATE INDEX")
    assert "AddIndexConcurrently" in str(problem)


def test_every_rule_says_what_to_write() -> None:
    assert all({**LOCKS, **OLD_CODE}.values())
    assert not LOCKS.keys() & OLD_CODE.keys()


def test_the_named_release_exists(loader: MigrationLoader) -> None:
    leaves = check_migrations.read_baseline(check_migrations.FILE.read_text(encoding="utf-8")).leaves
    assert [leaf for leaf in leaves.items() if leaf not in loader.graph.nodes] == []


def test_after_a_release_no_migration_is_new(loader: MigrationLoader, baseline: Baseline) -> None:
    assert list(check_migrations.since(baseline, loader)) == []


@pytest.mark.invariant(
    "Migrations since the last release hold no lock that grows with rows, and its code runs on the schema."
)
def test_the_migrations_since_the_last_release_are_allowed(loader: MigrationLoader) -> None:
    text = check_migrations.FILE.read_text(encoding="utf-8")
    released = check_migrations.with_columns(check_migrations.read_baseline(text), loader)
    for migration in check_migrations.since(released, loader):
        before = loader.project_state((migration.app_label, migration.name), at_end=False)
        assert check_migrations.check(migration, before, released) == []
