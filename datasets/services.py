"""Changes to datasets and their versions. Each runs in one transaction and writes an audit log entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.db import transaction

from datasets import messages, states, storage_usage, tasks
from datasets.errors import Exists, Incomplete
from datasets.models import DESCRIPTION_LIMIT, Dataset, Share, Version, Visibility
from datasets.selectors import dataset_for, version_for
from datasets.states import Event, VersionState
from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, ValidationFailed
from portal.common.rows import ensure
from rbac import namespace_names
from rbac.access import hold_open, namespace_for
from rbac.audit import log as audit_log
from rbac.models import Namespace, User
from rbac.scopes import Scope
from runtime.data.format_selection import DECLARABLE

SHARES_LIMIT = 100  # namespaces that a dataset can be shared with
NAMED_LIMIT = 20  # files that an error message lists
_WRITE = Scope.DATASET_WRITE


# --- Datasets -------------------------------------------------------------------------------------------------------
@transaction.atomic
def create_dataset(
    *,
    actor: User,
    namespace_name: str,
    name: str,
    description: str = "",
    format: str = "",
) -> Dataset:
    """Create a dataset. Raises NotFound, Forbidden, ValidationFailed, Exists (also for the name of a deleted one)."""
    namespace = namespace_for(actor, namespace_name, _WRITE)
    _refuse(_faults(name=name, description=description, format=format))
    hold_open(namespace)
    earlier = Dataset.objects.filter(namespace=namespace, name=name).first()
    if earlier is not None:
        raise Exists(_taken(earlier))
    dataset = Dataset.objects.create(
        namespace=namespace, name=name, description=description, format=format, owner=actor, created=wall_clock()
    )
    _note("dataset.create", dataset, actor)
    return dataset


def _taken(earlier: Dataset) -> str:
    if earlier.deleted_at is not None:
        return messages.DATASET_NAME_IN_GRACE(name=earlier.full_name)
    return messages.DATASET_NAME_TAKEN(name=earlier.full_name)


@transaction.atomic
def change_dataset(*, actor: User, ns: str, name: str, fields: Mapping[str, Any]) -> Dataset:
    """Change the description or the ``visibility``. Raises NotFound, Forbidden, ValidationFailed."""
    dataset = _living(dataset_for(actor, ns, name, _WRITE))
    _refuse(_faults(**fields) if fields else {"body": [messages.NOTHING_TO_CHANGE()]})
    before = {field: getattr(dataset, field) for field in fields}
    for field, value in fields.items():
        setattr(dataset, field, value)
    dataset.save(update_fields=list(fields))
    _note("dataset.change", dataset, actor, before=before, after=dict(fields))
    return dataset


@transaction.atomic
def share_dataset(*, actor: User, ns: str, name: str, namespaces: Iterable[str]) -> Dataset:
    """Share the dataset with exactly these namespaces. The response does not reveal which of them exist.

    A name that no namespace has is stored and has no effect, even if a namespace gets that name later. To share with
    that namespace, remove the name and share again.

    Raises NotFound, Forbidden, ValidationFailed.
    """
    dataset = _living(dataset_for(actor, ns, name, _WRITE))
    wanted = sorted(set(namespaces) - {dataset.namespace.name})
    if impossible := [each for each in wanted if not namespace_names.is_label(each)]:
        raise ValidationFailed({"namespaces": [namespace_names.not_a_label(impossible[0])]})
    if len(wanted) > SHARES_LIMIT:
        raise ValidationFailed({"namespaces": [messages.SHARED_NAMESPACE_LIMIT(count=SHARES_LIMIT)]})
    before = sorted(dataset.shares.values_list("name", flat=True))
    dataset.shares.exclude(name__in=wanted).delete()
    present = {namespace.name: namespace for namespace in Namespace.objects.filter(name__in=wanted)}
    for each in wanted:
        ensure(Share, dataset=dataset, name=each, namespace=present.get(each))
    _note("dataset.share", dataset, actor, before={"namespaces": before}, after={"namespaces": wanted})
    return dataset


@transaction.atomic
def delete_dataset(*, actor: User, ns: str, name: str) -> Dataset:
    """Delete a dataset. It can be restored until its grace period ends. Idempotent."""
    dataset = dataset_for(actor, ns, name, _WRITE)
    if dataset.deleted_at is None:
        dataset.deleted_at = wall_clock()
        dataset.save(update_fields=["deleted_at"])
        _note("dataset.delete", dataset, actor)
    return dataset


@transaction.atomic
def restore_dataset(*, actor: User, ns: str, name: str) -> Dataset:
    """Restore a deleted dataset. Raises NotFound after its grace period."""
    dataset = dataset_for(actor, ns, name, _WRITE)
    if dataset.deleted_at is not None:
        dataset.deleted_at = None
        dataset.save(update_fields=["deleted_at"])
        _note("dataset.restore", dataset, actor)
    return dataset


def _living(dataset: Dataset) -> Dataset:
    if dataset.deleted_at is not None:
        raise Conflict(messages.DATASET_IN_TRASH(name=dataset.full_name))
    return dataset


def _faults(**fields: Any) -> dict[str, list[str]]:
    return {field: [message] for field, value in fields.items() if (message := _FAULTS[field](value))}


def _refuse(errors: dict[str, list[str]]) -> None:
    if errors:
        raise ValidationFailed(errors)


_FAULTS: Mapping[str, Callable[[str], str]] = {
    "name": lambda name: "" if namespace_names.is_label(name) else namespace_names.not_a_label(name[:80]),
    "description": lambda text: (
        "" if len(text) <= DESCRIPTION_LIMIT else messages.DESCRIPTION_TOO_LONG(count=DESCRIPTION_LIMIT)
    ),
    "format": lambda name: (
        "" if name in ("", *DECLARABLE) else messages.CHOICE_INVALID_OPTIONAL(names=", ".join(DECLARABLE))
    ),
    "visibility": lambda word: (
        "" if word in Visibility.values else messages.CHOICE_INVALID(names=", ".join(Visibility.values))
    ),
}


# --- Versions --------------------------------------------------------------------------------------------------------
@transaction.atomic
def begin_version(*, actor: User, ns: str, name: str, expected_bytes: int = 0) -> Version:
    """Create a version and reserve ``expected_bytes``. Raises NotFound, Forbidden, Conflict, QuotaExceeded."""
    dataset = _living(dataset_for(actor, ns, name, _WRITE))
    storage_usage.claim(dataset, expected_bytes)
    newest = dataset.versions.order_by("-number").values_list("number", flat=True).first() or 0
    now = wall_clock()
    version = Version.objects.create(
        dataset=dataset, number=newest + 1, reserved=expected_bytes, created=now, touched=now, created_by=actor
    )
    _note("dataset.version", dataset, actor, detail={"version": version.number})
    return version


@transaction.atomic
def seal_version(*, actor: User, ns: str, name: str, number: int) -> Version:
    """Close a version permanently; it is indexed next. Idempotent.

    Raises NotFound, Forbidden, Conflict, and Incomplete with the ``files`` that are missing.
    """
    version = locked(version_for(actor, ns, name, number, _WRITE))
    before = VersionState(version.state)
    version.state = _step(version, Event.SEAL)
    if before not in states.FILLABLE:
        return version
    _refuse_incomplete(version)
    version.reserved, version.why, version.claimed_until, version.tries = 0, "", None, 0
    version.save(update_fields=["state", "reserved", "why", "claimed_until", "tries"])
    storage_usage.settle(version.dataset)
    _note("dataset.seal", version.dataset, actor, detail={"version": version.number})
    tasks.hint(version.pk)
    return version


def _refuse_incomplete(version: Version) -> None:
    open_files = version.files.filter(blob=None).order_by("path")
    paths = list(open_files.values_list("path", flat=True)[:NAMED_LIMIT])
    if paths:
        raise Incomplete(
            messages.VERSION_FILES_INCOMPLETE(count=open_files.count(), number=version.number, path=f"{paths[0]!r}"),
            files=paths,
        )
    if not version.files.exists():
        raise Incomplete(messages.VERSION_EMPTY(number=version.number), files=[])


@transaction.atomic
def delete_version(*, actor: User, ns: str, name: str, number: int) -> Version:
    """Delete a version and its files. Content that no other version uses is deleted from the storage too."""
    version = locked(version_for(actor, ns, name, number, _WRITE))
    version.state = _step(version, Event.DELETE)
    version.deleted_at, version.reserved = wall_clock(), 0
    version.save(update_fields=["state", "deleted_at", "reserved"])
    version.files.filter(blob=None).delete()  # their staged parts are swept
    storage_usage.settle(version.dataset)
    _note("dataset.delete_version", version.dataset, actor, detail={"version": version.number})
    return version


def locked(version: Version) -> Version:
    """Return the version with its row locked until the transaction ends. Raises Conflict if its dataset is deleted."""
    dataset = _living(version.dataset)
    found = Version.objects.select_for_update().get(pk=version.pk)
    found.dataset = dataset
    return found


def fill(version: Version) -> None:
    """Record that a locked version is being filled. Raises Conflict if its state does not allow it."""
    state = _step(version, Event.FILL)
    Version.objects.filter(pk=version.pk).update(state=state, touched=wall_clock())
    version.state = state


def _step(version: Version, event: Event) -> VersionState:
    try:
        return states.step(VersionState(version.state), event, version.number)
    except states.Impossible as error:
        raise Conflict(str(error)) from None


def _note(action: str, dataset: Dataset, actor: User, **more: Any) -> None:
    audit_log.record(action, dataset.full_name, actor=actor, namespace=dataset.namespace, **more)
