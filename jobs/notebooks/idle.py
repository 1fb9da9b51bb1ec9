"""Periodic look at running notebooks: is one busy, when was it last active, and has it been idle for too long?

Jupyter says so itself (``<base>regatta/activity``). A notebook that does not answer is not stopped: its kernel may hold
the machine. The answers come from user code, and are used for the notebook itself only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import DatabaseError
from django.db.models import F, Q

from jobs.backends.base import AttemptRef
from jobs.control.errors import ControlError
from jobs.lifecycle.states import TERMINAL, JobState
from jobs.lifecycle.wording import in_words
from jobs.models import Attempt, Notebook
from jobs.models.notebooks import base_url
from jobs.notebooks import selectors, services
from jobs.notebooks.access import REPLICA, SOCKET
from rbac import tokens

# Like jobs.control.replica_http.get_json.
GetJson = Callable[[AttemptRef, str, str, str, float], dict[str, Any]]

EVERY: Final = timedelta(seconds=15)
# Notebooks of one pass, those first that were looked at longest ago, and the time that each has to answer.
AT_ONCE: Final = 16
SECONDS: Final = 2.0
_THREADS: Final = 8
# An earlier activity is an invention, and databases cannot store all of them.
_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)

_log = logging.getLogger(__name__)


class Activity(NamedTuple):
    """What a notebook says about itself."""

    busy: bool
    last: datetime | None


class NotebookWatch:
    """Looks at notebooks, stops those that were idle for too long, and ends the tokens of those that have ended."""

    def __init__(self, get_json: GetJson) -> None:
        self._get_json = get_json

    def when_due(self, now: datetime) -> None:
        """Look at notebooks whose last look is ``EVERY`` ago."""
        end_tokens()
        due = Q(looked=None) | Q(looked__lte=now - EVERY)
        running = Notebook.objects.filter(due, job__state=JobState.RUNNING, job__cancel_requested=None)
        columns = ("pk", "namespace__name", "job_id", "job__attempt")
        rows = list(running.order_by(F("looked").asc(nulls_first=True)).values_list(*columns)[:AT_ONCE])
        if not rows:
            return
        attempts = dict(
            Attempt.objects.filter(job__in=[job for _, _, job, _ in rows], number=F("job__attempt")).values_list(
                "job_id", "pk"
            )
        )
        refs = [
            (pk, AttemptRef(str(job), str(attempts[job]), number, namespace))
            for pk, namespace, job, number in rows
            if job in attempts
        ]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="notebooks") as threads:
            answers = list(threads.map(lambda row: self._asked(*row), refs))
        for (pk, _), activity in zip(refs, answers, strict=True):
            try:
                note(pk, activity, now)
            except DatabaseError:
                raise
            except Exception:  # noqa: BLE001  one notebook must not end the look at the others
                _log.exception("The notebook %s could not be looked at.", pk)
                Notebook.objects.filter(pk=pk).update(looked=now)

    def _asked(self, notebook: UUID, ref: AttemptRef) -> Activity | None:
        path = f"{base_url(ref.namespace, notebook)}regatta/activity"
        try:
            return activity_of(self._get_json(ref, REPLICA, SOCKET, path, SECONDS))
        except ControlError as error:
            _log.info("The notebook %s did not say whether it is idle. %s", notebook, error)
            return None


def activity_of(body: dict[str, Any]) -> Activity:
    """Return the activity that an answer describes. One that makes no sense counts as busy."""
    try:
        last = datetime.fromisoformat(str(body["last_activity"]))
        # Converted here: at the ends of the calendar that fails, and the database would fail later.
        last = (last if last.tzinfo else last.replace(tzinfo=UTC)).astimezone(UTC)
        if last < _EARLIEST:
            raise ValueError("before any notebook")
        return Activity(body["busy"] is not False, last)
    except (KeyError, ValueError, OverflowError):
        return Activity(True, None)


def note(notebook_id: UUID, activity: Activity | None, now: datetime) -> None:
    """Store a look, and stop the notebook if its time is over."""
    rows = Notebook.objects.filter(pk=notebook_id)
    if activity is None:
        rows.update(looked=now)
        return
    last = now if activity.busy or activity.last is None else min(activity.last, now)
    rows.update(looked=now, busy=activity.busy, active=last)
    rows.filter(last_used__lt=last).update(last_used=last)
    notebook = rows.select_related("namespace", "owner", "job").first()
    if notebook is None:
        return
    at = selectors.stops_at(notebook)
    if at is not None and now >= at:
        services.stop(actor=None, notebook_id=notebook_id, idle=in_words(timedelta(seconds=notebook.idle_seconds)))


def end_tokens() -> None:
    """Revoke the tokens of notebooks whose job has ended."""
    ended = Q(job=None) | Q(job__state__in=TERMINAL)
    for notebook in Notebook.objects.filter(ended, token__isnull=False).select_related(
        "token__user", "token__namespace"
    ):
        if notebook.token is not None:
            tokens.end_token(notebook.token)
        Notebook.objects.filter(pk=notebook.pk, token=notebook.token_id).update(token=None)
