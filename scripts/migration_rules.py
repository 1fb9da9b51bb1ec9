"""Rules for migrations while the portal of the last release runs. Pure: SQL and findings in, problems out.

Two things go wrong during a rolling upgrade: a statement holds a lock for a time that grows with the rows of its table,
or the code of the last release meets a schema that it does not know. squawk finds the statements of both kinds; these
rules know which tables and columns the last release has, and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_INDEX = "AddIndexConcurrently of portal.common.migrating, in a migration with atomic = False"
_TWO_RELEASES = (
    "remove it from the state alone (SeparateDatabaseAndState with state_operations), and from the database in the "
    "next release"
)
# What to write instead, by rule of squawk or of this module. On a small table these are allowed.
LOCKS: Mapping[str, str] = {
    "require-concurrent-index-creation": f"{_INDEX}. For a foreign key: db_index=False and an index of its own",
    "constraint-missing-not-valid": "AddCheckNotValid, and ValidateCheck in a migration of its own",
    "disallowed-unique-constraint": "AddUniqueConcurrently, in a migration with atomic = False",
    "adding-foreign-key-constraint": "a new nullable column with the foreign key, without a default",
    "adding-not-nullable-field": "AddCheckNotValid with IS NOT NULL, and ValidateCheck in a migration of its own",
    "changing-column-type": "a new column with the new type, filled by InBatches. If a varchar only becomes longer, "
    "accept the rule in scripts/release_baseline.toml",
    "adding-field-with-default": "a constant db_default, or a nullable column that InBatches fills",
    "adding-primary-key-constraint": "a unique index built by AddUniqueConcurrently",
    "adding-serial-primary-key-field": "a new table",
    "rows-in-one-statement": "InBatches, in a migration with atomic = False",
    "scan-in-transaction": "a migration of its own for ValidateCheck",
    "several-alterations": "one migration for each: the first lock is held until the transaction ends",
}
# These break the code of the last release, on every table that it has.
OLD_CODE: Mapping[str, str] = {
    "ban-drop-column": _TWO_RELEASES,
    "ban-drop-table": _TWO_RELEASES,
    "renaming-column": "a new column, filled by InBatches; both are written until the next release",
    "renaming-table": "a new model with db_table of the old one",
    "adding-required-field": "db_default, or null=True: the last release inserts rows without this column",
    "no-database-default": "db_default, or null=True: the last release inserts rows without this column",
    "removed-while-required": "db_default or null=True before the field leaves the state: new code inserts rows "
    "without it",
    "rows-in-python": "InBatches, in a migration with atomic = False",
}

_TABLE = re.compile(
    r'^(?:ALTER TABLE(?: IF EXISTS)?(?: ONLY)?|DROP TABLE(?: IF EXISTS)?|UPDATE|DELETE FROM|INSERT INTO) "(?P<a>[^"]+)"'
    r'|^CREATE (?:UNIQUE )?INDEX\b.*? ON "(?P<b>[^"]+)"'
)
_ROWS = re.compile(r"^(UPDATE|DELETE FROM|INSERT INTO .*\bSELECT\b)")
_ADDED = re.compile(r'^ALTER TABLE "[^"]+" ADD COLUMN "(?P<column>[^"]+)"(?P<rest>.*)')
_DROPPED = re.compile(r'\bDROP COLUMN(?: IF EXISTS)? "(?P<column>[^"]+)"')
_NEW_FOREIGN_KEY = re.compile(r'ADD COLUMN "[^"]+" [^"]*\bNULL CONSTRAINT "[^"]+" REFERENCES')


@dataclass(frozen=True)
class Baseline:
    """The last release: its last migrations by app, its tables with their columns, and exceptions."""

    version: str
    leaves: Mapping[str, str]
    small: frozenset[str] = frozenset()
    accepted: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    columns: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """A rule that a migration breaks, where, and what to write instead."""

    migration: str
    rule: str
    where: str
    instead: str

    def __str__(self) -> str:
        return f"{self.migration}: {self.rule}\n    {self.where}\n    Write {self.instead}."


def problems(
    migration: str, statements: Sequence[str], found: Iterable[tuple[int, str]], *, atomic: bool, baseline: Baseline
) -> list[Problem]:
    """Return the problems of the statements of a migration, in their order.

    ``found`` are squawk's findings: the index of the statement and the rule.
    """
    every = sorted({*found, *_own(statements, atomic), *_alterations(statements, atomic, baseline)})
    accepted = baseline.accepted.get(migration, {})
    return [
        Problem(migration, rule, statements[index], (LOCKS.get(rule) or OLD_CODE[rule]))
        for index, rule in every
        if rule not in accepted and _counts(rule, statements[index], baseline)
    ]


def _own(statements: Sequence[str], atomic: bool) -> Iterator[tuple[int, str]]:
    for index, sql in enumerate(statements):
        if _ROWS.match(sql):
            yield index, "rows-in-one-statement"
        if "VALIDATE CONSTRAINT" in sql and atomic and len(statements) > 1:
            yield index, "scan-in-transaction"
        added = _ADDED.match(sql)
        if added and "NOT NULL" in added["rest"] and "DEFAULT" in added["rest"]:
            dropped = f'ALTER COLUMN "{added["column"]}" DROP DEFAULT'
            if any(dropped in later for later in statements[index + 1 :]):
                yield index, "no-database-default"


def _alterations(statements: Sequence[str], atomic: bool, baseline: Baseline) -> Iterator[tuple[int, str]]:
    """Yield the second and later alterations of tables in one transaction."""
    altered = [index for index, sql in enumerate(statements) if sql.startswith("ALTER TABLE")]
    large = [index for index in altered if _table_of(statements[index]) in baseline.columns.keys() - baseline.small]
    yield from ((index, "several-alterations") for index in large[1:] if atomic)


def _table_of(sql: str) -> str:
    match = _TABLE.match(sql)
    return (match["a"] or match["b"]) if match else ""


def _counts(rule: str, sql: str, baseline: Baseline) -> bool:
    """Return whether a finding concerns a table that the last release has, and is none of the harmless cases."""
    table = _table_of(sql)
    if table and table not in baseline.columns:
        # Created since the last release and so empty; or the last release has already left it.
        return False
    if rule in LOCKS:
        is_new_foreign_key = rule == "adding-foreign-key-constraint" and bool(_NEW_FOREIGN_KEY.search(sql))
        return table not in baseline.small and not (is_new_foreign_key and "DEFAULT" not in sql)
    if rule == "ban-drop-column":
        return any(column in baseline.columns.get(table, frozenset()) for column in _DROPPED.findall(sql))
    return rule in OLD_CODE
