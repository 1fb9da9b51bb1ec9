"""Actions of users on notebooks. Each takes ``actor``, checks the scope, and adds a row to the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction

from datasets import selectors as datasets
from jobs.backends.local import isolation
from jobs.frameworks.definitions import NOTEBOOK
from jobs.lifecycle.states import ACTIVE
from jobs.messages import notebooks as messages
from jobs.models import Job, Notebook
from jobs.notebooks import environment, inputs, selectors, sources
from jobs.services import jobs as job_services
from jobs.services.notifications import happened, notify
from jobs.spec.model import JobSpec, RoleSpec
from jobs.spec.validators import LONGEST
from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, Forbidden, NotFound
from rbac import throttle, tokens
from rbac.access import hold_open, namespace_for
from rbac.audit import log as audit_log
from rbac.models import User
from rbac.scopes import Scope
from runtime.contract import NOTEBOOK_START

# A notebook whose server has ended starts again: its kernels are lost, its home is not.
RETRIES = 3


def count_start(actor: User) -> None:
    """Count a start. Raises TooManyRequests if the account starts jobs more often than SUBMIT_RATE allows."""
    throttle.take_of("submit", str(actor.pk), settings.SUBMIT_RATE)


def create(
    *, actor: User, namespace: str, body: Mapping[str, Any], idempotency_key: str | None = None
) -> tuple[Notebook, bool]:
    """Create a notebook, without starting it. Return it, and whether it is new: a second call with the same key returns
    the first one.

    Raises NotFound, Forbidden, ValidationFailed, and Conflict if the name is taken.
    """
    target = namespace_for(actor, namespace, Scope.JOB_WRITE)
    key = job_services.checked_key(idempotency_key)
    fields = inputs.read(body)
    source = sources.checked(actor, namespace, body.get(sources.FIELD))
    if key and (earlier := Notebook.objects.filter(namespace=target, owner=actor, idempotency_key=key).first()):
        return earlier, False
    now = wall_clock()
    try:
        with transaction.atomic():
            hold_open(target)
            notebook = Notebook.objects.create(
                namespace=target,
                owner=actor,
                **_columns(fields),
                source=source,
                created=now,
                last_used=now,
                idempotency_key=key,
            )
            detail = {"name": notebook.name, "source": source.get("kind", sources.EMPTY)}
            audit_log.record("notebook.create", str(notebook.pk), actor=actor, namespace=target, detail=detail)
    except IntegrityError:
        raise Conflict(messages.NOTEBOOK_NAME_TAKEN(name=f"{fields.name!r}")) from None
    return notebook, True


def _columns(fields: inputs.Fields) -> dict[str, Any]:
    return {
        "name": fields.name,
        "cpu": fields.cpu,
        "memory": fields.memory,
        "gpu": fields.gpu,
        "requirements": list(fields.requirements),
        "idle_seconds": fields.idle,
    }


@transaction.atomic
def change(*, actor: User, notebook_id: UUID, body: Mapping[str, Any]) -> Notebook:
    """Change the idle time; and the resources, the packages and the name of a notebook that does not run.

    Raises NotFound, Forbidden, ValidationFailed, and Conflict if it runs or the name is taken.
    """
    notebook = selectors.notebook_for(actor, notebook_id, Scope.JOB_WRITE)
    before = inputs.Fields(
        name=notebook.name,
        cpu=notebook.cpu,
        memory=notebook.memory,
        gpu=notebook.gpu,
        requirements=tuple(notebook.requirements),
        idle=notebook.idle_seconds,
    )
    fields = inputs.read(body, before)
    if replace(fields, idle=before.idle) != before and selectors.is_active(notebook):
        raise Conflict(messages.NOTEBOOK_RUNS(name=notebook.name))
    others = Notebook.objects.filter(namespace=notebook.namespace, name=fields.name).exclude(pk=notebook.pk)
    if others.exists():
        raise Conflict(messages.NOTEBOOK_NAME_TAKEN(name=f"{fields.name!r}"))
    after = _columns(fields)
    changed = {name: value for name, value in after.items() if getattr(notebook, name) != value}
    if changed:
        earlier = {name: getattr(notebook, name) for name in changed}
        try:
            with transaction.atomic():
                Notebook.objects.filter(pk=notebook.pk).update(**changed)
        except IntegrityError:
            raise Conflict(messages.NOTEBOOK_NAME_TAKEN(name=f"{fields.name!r}")) from None
        audit_log.record(
            "notebook.change",
            str(notebook.pk),
            actor=actor,
            namespace=notebook.namespace,
            before=earlier,
            after=changed,
        )
    return selectors.notebook_for(actor, notebook_id, Scope.JOB_WRITE)


def start(*, actor: User, notebook_id: UUID) -> Notebook:
    """Submit the job of a notebook. Does nothing if it runs already.

    Raises NotFound, Forbidden, QuotaExceeded, ValidationFailed, and Conflict while it stops.
    """
    notebook = selectors.notebook_for(actor, notebook_id, Scope.JOB_WRITE)
    if why := isolation.refusal(actor):
        raise Forbidden(why)
    if selectors.is_active(notebook):
        return _running(notebook)
    namespace = notebook.namespace.name
    # The key names the start: of two requests of one person at once, the second one gets the job of the first one.
    key = f"notebook-{notebook.pk}-{notebook.job_id or 'first'}"
    # Also while the storage is full: files in the home can only be deleted in a notebook.
    submit = partial(
        job_services.submit_job, actor=actor, namespace=namespace, spec=_spec(actor, notebook), when_full=True
    )
    try:
        submitted = submit(idempotency_key=key)
    except Conflict:  # a former start had the key, with another specification, and a later job was deleted since
        submitted = submit(idempotency_key=None)
    if not submitted.created and submitted.job.state not in ACTIVE:  # a later job was deleted since
        submitted = submit(idempotency_key=None)
    job = submitted.job
    now = wall_clock()
    before = Notebook.objects.filter(pk=notebook.pk, job=notebook.job_id)
    with transaction.atomic():
        if before.update(job=job, last_used=now, active=None, busy=False, looked=None):
            audit_log.record("notebook.start", str(notebook.pk), actor=actor, namespace=notebook.namespace)
        elif not Notebook.objects.filter(pk=notebook.pk, job=job).exists():
            # Somebody else has started or deleted it since: this job belongs to no notebook.
            unused = Job.objects.filter(pk=job.pk, cancel_requested=None, state__in=ACTIVE)
            if unused.update(cancel_requested=now, cancelled_by=actor):
                notify(job)
    return selectors.notebook_for(actor, notebook_id, Scope.JOB_WRITE)


def _running(notebook: Notebook) -> Notebook:
    job = notebook.job
    if job is not None and job.cancel_requested is not None:
        raise Conflict(messages.NOTEBOOK_STOPS(name=notebook.name))
    return notebook


def _spec(actor: User, notebook: Notebook) -> JobSpec:
    """Return the specification of the next job of a notebook."""
    start = sources.start_of(actor, notebook.source, notebook.name, lambda job: selectors.job_path(notebook, job))
    files = {f"{NOTEBOOK_START}/{path}": text for path, text in start.files.items()}
    return JobSpec(
        name=notebook.name,
        entrypoint="",
        framework=NOTEBOOK,
        trainer=RoleSpec(cpu=notebook.cpu, memory=notebook.memory, gpu=notebook.gpu),
        pserver=RoleSpec(replicas=0, max=0),
        files={**environment.client_files(), **files},
        requirements=(*environment.requirements(), *notebook.requirements),
        dataset=_readable(actor, notebook, start.dataset),
        timeout=LONGEST,
        retries=RETRIES,
    )


def _readable(actor: User, notebook: Notebook, dataset: str) -> str:
    """Return the dataset; empty if it is gone, since the notebook starts all the same."""
    try:
        datasets.resolve(actor, notebook.namespace.name, dataset) if dataset else None
    except NotFound:
        return ""
    return dataset


@transaction.atomic
def stop(*, actor: User | None, notebook_id: UUID, idle: str = "") -> Notebook:
    """Request the end of the notebook's job. Does nothing if none runs. ``actor`` None: the platform, because it was
    ``idle`` for that time.

    Raises NotFound and Forbidden.
    """
    rows = Notebook.objects.select_related("namespace", "owner", "job")
    notebook = selectors.notebook_for(actor, notebook_id, Scope.JOB_WRITE) if actor else rows.get(pk=notebook_id)
    job = notebook.job
    if job is not None and job.state in ACTIVE:
        fresh = Job.objects.filter(pk=job.pk, cancel_requested=None, state__in=ACTIVE)
        if fresh.update(cancel_requested=wall_clock(), cancelled_by=actor):
            detail = {"job": str(job.pk), "idle": bool(idle)}
            audit_log.record(
                "notebook.stop", str(notebook.pk), actor=actor, namespace=notebook.namespace, detail=detail
            )
            if idle:
                text = messages.NOTEBOOK_IDLE(length=idle)
                happened(job.pk, job.attempt, "", kind="idle", text=text)
            notify(job)
            job.refresh_from_db()
    return notebook


@transaction.atomic
def delete(*, actor: User, notebook_id: UUID) -> None:
    """Delete a notebook that does not run. Its files stay in the home of the namespace.

    Raises NotFound, Forbidden, and Conflict if it runs.
    """
    notebook = selectors.notebook_for(actor, notebook_id, Scope.JOB_WRITE)
    if selectors.is_active(notebook):
        raise Conflict(messages.NOTEBOOK_RUNS(name=notebook.name))
    if notebook.token is not None:
        tokens.end_token(notebook.token)
    detail = {"name": notebook.name, "owner": notebook.owner.username}
    audit_log.record("notebook.delete", str(notebook.pk), actor=actor, namespace=notebook.namespace, detail=detail)
    Notebook.objects.filter(pk=notebook.pk).delete()


def open_for(*, actor: User, namespace: str, source: Mapping[str, Any], name: str) -> Notebook:
    """Return the actor's notebook with this source, created if there is none, and started.

    Raises as ``create`` and ``start``.
    """
    target = namespace_for(actor, namespace, Scope.JOB_WRITE)
    stored = sources.checked(actor, namespace, source)
    mine = Notebook.objects.filter(namespace=target, owner=actor, source=stored).order_by("created").first()
    if mine is None:
        mine, _ = create(actor=actor, namespace=namespace, body={"name": _free_name(target.pk, name), "source": source})
    return start(actor=actor, notebook_id=mine.pk)


def _free_name(namespace: int, name: str) -> str:
    """Return the name, with a number if another notebook of the namespace has it."""
    taken = set(Notebook.objects.filter(namespace=namespace, name__startswith=name[:55]).values_list("name", flat=True))
    candidates = (
        name[:63].strip("-") if not number else f"{name[:55].strip('-')}-{number + 1}" for number in range(999)
    )
    return next((one for one in candidates if one not in taken), name)
