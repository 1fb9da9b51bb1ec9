"""Insertion of rows that another process may insert at the same moment."""

from __future__ import annotations

from typing import Any

from django.db.models import Model


def ensure(model: type[Model], **fields: Any) -> None:
    """Insert a row with these fields unless a unique constraint says that it exists.

    One statement with ON CONFLICT DO NOTHING: of two concurrent writers neither fails, and the database logs no error.
    In a transaction of PostgreSQL the second waits for the first; a read after it finds the row.
    """
    model._default_manager.bulk_create([model(**fields)], ignore_conflicts=True)
