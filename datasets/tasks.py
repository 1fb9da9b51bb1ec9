"""Celery tasks that index a version now. If a task is lost, the next sweep indexes the version."""

from __future__ import annotations

import logging

from celery import shared_task
from django.db import transaction

from datasets.indexing import indexing

_log = logging.getLogger(__name__)


@shared_task  # type: ignore[untyped-decorator]
def index_version(version_id: int) -> None:
    """Index one version that is being sealed."""
    indexing.index(version_id)


def hint(version_id: int) -> None:
    """Request indexing of the version after the current transaction commits. Never raises."""
    transaction.on_commit(lambda: _send(version_id), robust=True)


def _send(version_id: int) -> None:
    try:
        index_version.apply_async((version_id,), retry=False)
    except Exception:  # noqa: BLE001  a broker fails in many ways, and none may fail the caller
        _log.warning("No hint could be sent for version %s; the sweep will find it.", version_id, exc_info=True)
