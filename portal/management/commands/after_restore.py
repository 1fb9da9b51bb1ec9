"""``manage.py after_restore``: the step between the restoration of the database and the next start of the portal.

Running attempts that the restored database does not know are stopped, and the jobs of those that have ended since get
a next attempt. See "A restore that is older than running jobs" in docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs.backends.base import AttemptRef, BackendUnavailable
from jobs.reconcile import restoration
from rbac.audit import restorations


class Command(BaseCommand):
    help = "Compare a restored database with the running attempts: stop those it does not know, end those that ended."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only print what would be done")
        parser.add_argument(
            "--cancel-missing",
            action="store_true",
            help="cancel the jobs whose attempts have ended since, instead of running them again",
        )
        parser.add_argument("--seconds", type=float, default=120.0, help="how long to wait for the end of attempts")

    def handle(self, *args: Any, dry_run: bool, cancel_missing: bool, seconds: float, **options: Any) -> None:
        try:
            survey = restoration.survey()
            self._print(survey)
            if not dry_run:
                self._repair(survey, seconds=seconds, cancel=cancel_missing)
        except BackendUnavailable as error:
            raise CommandError(f"The backend does not answer; run this command again. {error}") from None

    def _print(self, survey: restoration.Survey) -> None:
        state = f"{survey.point:%Y-%m-%d %H:%M:%S} UTC" if survey.point else "before the first job"
        self.stdout.write(f"The database has the state of {state}.")
        self._list("continue", survey.continuing)
        self._list("are unknown to the database", survey.unknown)
        self._list("have ended since", survey.missing)

    def _list(self, what: str, refs: Iterable[AttemptRef]) -> None:
        rows = [f"  job {ref.job_id}, attempt {ref.number}, namespace {ref.namespace}" for ref in refs]
        self.stdout.write("\n".join([f"Attempts that {what}: {len(rows)}", *rows]))

    def _repair(self, survey: restoration.Survey, *, seconds: float, cancel: bool) -> None:
        left = restoration.stop_unknown(survey.unknown, seconds=seconds)
        if left:
            self._list("still run", left)
            raise CommandError("Do not start the portal yet: run this command again.")
        restoration.end_missing(survey.missing, survey.point, cancel=cancel)
        renumbered = restoration.skip_used_numbers(survey.unknown)
        restorations.record({**survey.counts(), "cancelled": cancel, "renumbered": len(renumbered)})
        self.stdout.write("The database is ready: start the portal.")
