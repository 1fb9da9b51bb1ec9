"""Observations from the database: heartbeats, failing tasks, queue, streams, tokens and e-mails."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, F, Min, Q, Sum

from jobs.lifecycle.states import TERMINAL
from jobs.maintenance.stream_compaction import MANY_BLOCKS
from jobs.models import FailedTask, Job, JobState
from jobs.models.streams import StreamHead
from portal.common.version import VERSION
from portal.system import heartbeats
from portal.system import observations as seen
from portal.system.redaction import Redaction
from quota import selectors as quota
from rbac.audit import restorations as restored
from rbac.models import ApiToken, FailedEmail, OutgoingEmail
from rbac.sign_in import registration

TOKEN_DAYS = 14
MOST_OWNERS = 50
UNSENT_FOR = timedelta(days=1)
_ERROR_CHARACTERS = 300


def processes() -> seen.Processes:
    """Return the heartbeats of all processes."""
    return seen.Processes(heartbeats.processes(), VERSION)


def failing_tasks(redact: Redaction) -> list[seen.TaskFailure]:
    """Return the periodic tasks whose last run failed."""
    rows = FailedTask.objects.order_by("name")
    return [seen.TaskFailure(row.name, row.since, row.failures, redact(row.error)[:_ERROR_CHARACTERS]) for row in rows]


def restorations() -> list[seen.Restoration]:
    """Return the last restoration of the database, if there was one."""
    row = restored.latest()
    if row is None:
        return []
    detail = row.detail
    counts = (int(detail.get(name, 0)) for name in ("unknown", "missing"))
    return [seen.Restoration(row.at, str(detail.get("point", "")), *counts)]


def queue(now: datetime) -> seen.Queue:
    """Return the number of jobs by state, and the oldest queued job with its reason."""
    counts = dict(Job.objects.order_by().values_list("state").annotate(Count("pk")))
    return seen.Queue({str(state): counts.get(state, 0) for state in JobState}, _oldest(now, counts))


def _oldest(now: datetime, counts: dict[str, int]) -> seen.QueuedJob | None:
    if not counts.get(JobState.QUEUED):
        return None
    job = Job.objects.filter(state=JobState.QUEUED).select_related("namespace").order_by("changed", "pk").first()
    if job is None:
        return None
    # The job's own message is renewed when it changes; a claim knows the present verdict.
    waiters = {waiter.claim.job: waiter for waiter in quota.whole_queue(now).shown}
    waiter = waiters.get(job.pk)
    why = waiter.verdict.why if waiter and waiter.verdict else job.why
    return seen.QueuedJob(str(job.pk), job.name, job.namespace.name, job.changed, why)


def streams(now: datetime) -> seen.Streams:
    """Return the streams that wait to be merged."""
    due = StreamHead.objects.filter(Q(closed=True, unsealed__gt=0) | Q(unsealed__gte=MANY_BLOCKS))
    found = due.aggregate(streams=Count("pk"), blocks=Sum("unsealed"))
    ended = due.filter(closed=True, job__state__in=TERMINAL).aggregate(first=Min("job__finished"))
    return seen.Streams(found["blocks"] or 0, found["streams"], ended["first"])


def tokens(now: datetime) -> seen.Tokens:
    """Return the tokens that expire soon, by owner, the first to expire first."""
    soon = ApiToken.objects.filter(revoked=None, expires__gt=now, expires__lte=now + timedelta(days=TOKEN_DAYS))
    rows = (
        soon.filter(user__is_active=True)
        .values_list("user__username", "user__service_of__name")
        .annotate(count=Count("pk"), first=Min("expires"))
        .order_by("first", "user__username")[:MOST_OWNERS]
    )
    owners = (seen.TokenOwner(owner, namespace or "", count, first) for owner, namespace, count, first in rows)
    return seen.Tokens(TOKEN_DAYS, tuple(owners))


def mail(now: datetime) -> seen.Mail:
    """Return the state of the queue of e-mails, and how many failed recently."""
    # The admin who sends a test e-mail sees its error at once.
    failures = FailedEmail.objects.filter(sent=None, last__gt=now - UNSENT_FOR).exclude(template="trial")
    counts = failures.aggregate(
        unsent=Count("pk", filter=Q(email__isnull=False)),
        given_up=Count("pk", filter=Q(email=None)),
    )
    # An e-mail that was given up explains more than one that is tried again.
    newest = failures.order_by(F("email").desc(nulls_first=True), "-last").first()
    waiting = OutgoingEmail.objects.aggregate(count=Count("pk"), oldest=Min("due"))
    return seen.Mail(
        waiting=waiting["count"],
        oldest_due=waiting["oldest"],
        unsent=counts["unsent"],
        given_up=counts["given_up"],
        last_error=newest.error if newest else "",
        is_configured=not settings.EMAIL_BACKEND.endswith("console.EmailBackend"),
        confirms_accounts=registration.is_possible(),
    )
