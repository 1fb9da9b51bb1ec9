"""Datasets, versions and files that an actor may see.

All lookups start from ``readable``: datasets, versions and files of others are reported as not found. Versions that are
not sealed are visible to users with write permission only.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from django.db.models import Count, Exists, OuterRef, Prefetch, Q, QuerySet, Sum, prefetch_related_objects

from datasets import messages
from datasets.indexing import previews
from datasets.models import Dataset, File, Share, Version, Visibility
from datasets.states import VersionState
from portal.common.errors import Forbidden, NotFound
from rbac.access import Actor, is_granted, may, require_grant, restrict
from rbac.models import Namespace, User
from rbac.scopes import Scope
from runtime.data import catalogue as shipped
from runtime.data.dataset import DatasetInfo, UnknownDataset
from runtime.data.version_layout import versioned

PUBLIC = "public/"
SHIPPED_VERSION = 1
_PACKAGE = Path(__file__).resolve().parent
# Extra attributes of a row: whether it is in one of the actor's own namespaces, and its sealed versions.
_OWN, _SEALED = "of_own_namespace", "sealed_versions"
_SHOWN = (
    Prefetch("versions", Version.objects.filter(state=VersionState.SEALED).order_by("-number"), to_attr=_SEALED),
    "shares",
)
_NOT_THERE = messages.DATASET_NOT_FOUND


# --- Lookups ---------------------------------------------------------------------------------------------------------
def readable(actor: Actor) -> QuerySet[Dataset]:
    """Return the datasets whose sealed versions the actor may read: of the own namespaces, shared with them, or public.

    Includes deleted datasets of the own namespaces.
    """
    rows = Dataset.objects.filter(namespace__closed=None).select_related("namespace", "owner")
    if not isinstance(actor, User) or not actor.is_active or not is_granted(actor, Scope.DATASET_READ):
        return rows.none()
    own = restrict(Dataset.objects.all(), actor, Scope.DATASET_READ)
    namespaces = restrict(Namespace.objects.all(), actor, Scope.DATASET_READ, path="pk")
    shared = Share.objects.filter(namespace__in=namespaces.values("pk"))
    living = Q(deleted_at=None) & (Q(visibility=Visibility.PUBLIC) | Q(pk__in=shared.values("dataset")))
    return rows.filter(Q(pk__in=own.values("pk")) | living).annotate(**{_OWN: Exists(own.filter(pk=OuterRef("pk")))})


def listed(actor: Actor, q: str = "", namespace: Namespace | None = None) -> QuerySet[Dataset]:
    """Return the readable datasets that are not deleted. ``q`` searches the name, the namespace and the description."""
    rows = readable(actor).filter(deleted_at=None).prefetch_related(*_SHOWN)
    if namespace is not None:
        rows = rows.filter(namespace=namespace)
    owner, _, name = q.rpartition("/")
    anywhere = Q(name__icontains=q) | Q(namespace__name__icontains=q) | Q(description__icontains=q)
    return rows.filter(Q(namespace__name__icontains=owner, name__icontains=name) if owner else anywhere)


def dataset_for(actor: Actor, ns: str, name: str, scope: Scope = Scope.DATASET_READ) -> Dataset:
    """Return the dataset if the actor has ``scope`` for it.

    Raises NotFound, or Forbidden if the actor may only read it.
    """
    found = readable(actor).filter(namespace__name=ns, name=name).first()
    if found is None:
        raise NotFound(_NOT_THERE(name=f"{ns}/{name}"[:130]))
    if scope != Scope.DATASET_READ and not may(actor, scope, found.namespace):
        if isinstance(actor, User):
            require_grant(actor, scope)
        raise Forbidden(messages.DATASET_READ_ONLY(name=found.full_name, namespace=found.namespace.name))
    return found


def named(actor: Actor, ns: str, name: str) -> str:
    """Return the full name of a dataset that the actor may read, including shipped ones. Raises NotFound."""
    return find(PUBLIC + name).name if f"{ns}/" == PUBLIC else dataset_for(actor, ns, name).full_name


def may_write(actor: Actor, dataset: Dataset) -> bool:
    """Whether the actor may change the dataset."""
    return may(actor, Scope.DATASET_WRITE, dataset.namespace)


def is_member(actor: Actor, dataset: Dataset) -> bool:
    """Return whether the actor reads it as a member of its namespace, and so may see with whom it is shared."""
    own: bool | None = getattr(dataset, _OWN, None)
    return may(actor, Scope.DATASET_READ, dataset.namespace) if own is None else own


def versions_of(actor: Actor, dataset: Dataset) -> QuerySet[Version]:
    """Return the versions that the actor may see, newest first."""
    rows = dataset.versions.exclude(state=VersionState.DELETED).order_by("-number")
    return rows if may_write(actor, dataset) else rows.filter(state=VersionState.SEALED)


def version_for(actor: Actor, ns: str, name: str, number: int, scope: Scope = Scope.DATASET_READ) -> Version:
    """Return one version. Raises the same errors as ``dataset_for``."""
    dataset = dataset_for(actor, ns, name, scope)
    version = versions_of(actor, dataset).filter(number=min(number, 2**31 - 1)).first()
    if version is None:
        raise NotFound(messages.VERSION_NOT_VISIBLE(name=dataset.full_name, number=number))
    version.dataset = dataset
    return version


def latest(dataset: Dataset) -> Version | None:
    """Return the newest sealed version."""
    return dataset.versions.filter(state=VersionState.SEALED).order_by("-number").first()


def file_for(actor: Actor, version: Version, file_id: int) -> File:
    """Return a file of a version that is being filled. Raises NotFound."""
    found = version.files.filter(pk=min(file_id, 2**63 - 1)).first()
    if found is None:
        raise NotFound(messages.FILE_NOT_ANNOUNCED(number=version.number, name=version.dataset.full_name))
    found.version = version
    return found


def preview_for(actor: Actor, ns: str, name: str, number: int) -> dict[str, Any]:
    """Return the preview of a version. Shipped datasets have version 1. Raises the same errors as ``dataset_for``."""
    if f"{ns}/" != PUBLIC:
        return previews.of(version_for(actor, ns, name, number))
    info = find(PUBLIC + name)
    if number != SHIPPED_VERSION:
        raise NotFound(messages.VERSION_NOT_VISIBLE(name=info.name, number=number))
    return previews.of_shipped(info)


def content_of(version: Version, path: str) -> File:
    """Return a complete file of a version by path. Raises NotFound."""
    found = version.files.filter(path=path, blob__isnull=False).select_related("blob").first()
    if found is None:
        raise NotFound(
            messages.FILE_NOT_FOUND(number=version.number, name=version.dataset.full_name, path=f"{path[:200]!r}")
        )
    return found


# --- API representation ----------------------------------------------------------------------------------------------
def version_json(version: Version) -> dict[str, Any]:
    """Return a version for the API. While it is being filled, the totals are those of the announced files."""
    sealed = version.state == VersionState.SEALED
    announced = {} if sealed else version.files.aggregate(count=Count("pk"), size=Sum("size"))
    return {
        "number": version.number,
        "state": version.state,
        "why": version.why,
        "files": version.files_count if sealed else announced["count"],
        "size": version.size if sealed else announced["size"] or 0,
        "records": version.records,
        "created": version.created,
        "sealed": version.sealed,
    }


def dataset_json(actor: Actor, dataset: Dataset, *, versions: bool = False) -> dict[str, Any]:
    """Return a dataset for the API, as far as the actor may see it."""
    prefetch_related_objects([dataset], *_SHOWN)
    sealed: list[Version] = getattr(dataset, _SEALED)
    newest = sealed[0] if sealed else None
    member = is_member(actor, dataset)
    shown = [version_json(version) for version in versions_of(actor, dataset)] if versions else []
    return {
        "name": dataset.name,
        "namespace": dataset.namespace.name,
        "full_name": dataset.full_name,
        "description": dataset.description,
        "visibility": dataset.visibility,
        # Only members of the namespace may see with which others it is shared.
        "shared_with": sorted(share.name for share in dataset.shares.all()) if member else [],
        "format": (newest.format if newest else "") or dataset.format,
        "size": newest.size if newest else 0,
        "records": newest.records if newest else None,
        "latest": newest.number if newest else None,
        "created": dataset.created,
        "owner": dataset.owner.username if member else None,
        "deleted_at": dataset.deleted_at,
        "versions": shown,
    }


def shipped_json(info: DatasetInfo) -> dict[str, Any]:
    """Return a dataset that is shipped with the portal, with the same fields as ``dataset_json``."""
    namespace, _, name = info.name.partition("/")
    sizes = [path.stat().st_size for path in _files_of(info)]
    records = sum(info.records.values())
    return {
        "name": name,
        "namespace": namespace,
        "full_name": info.name,
        "description": info.title,
        "visibility": Visibility.PUBLIC,
        "shared_with": [],
        "format": "recordio",
        "size": sum(sizes),
        "records": records,
        "latest": SHIPPED_VERSION,
        "created": None,
        "owner": None,
        "deleted_at": None,
        "versions": [],
    }


def _files_of(info: DatasetInfo) -> Iterator[Path]:
    return (path for path in info.directory.iterdir() if path.name != shipped.DESCRIPTION)


# --- For jobs --------------------------------------------------------------------------------------------------------
def data_path() -> tuple[Path, ...]:
    """Return the directories that hold datasets by name: ``<directory>/public/digits`` is ``public/digits``."""
    return (_PACKAGE,)


@dataclass(frozen=True)
class Offer:
    """Dataset that a job may name, and its title."""

    name: str
    title: str


OFFERS = 500


def catalogue(actor: Actor, namespace: str) -> list[Offer]:
    """Return the datasets that the actor may train on in the namespace.

    The order is: those of the namespace, those of others (shared or public), shipped ones; each by name. Limited to
    OFFERS of each of the first two groups.
    """
    if not actor.is_active:
        return []
    rows = _usable(actor, namespace).filter(versions__state=VersionState.SEALED).distinct()
    own = rows.filter(namespace__name=namespace).order_by("name")[:OFFERS]
    others = rows.exclude(namespace__name=namespace).order_by("namespace__name", "name")[:OFFERS]
    offered = [Offer(dataset.full_name, dataset.description) for dataset in (*own, *others)]
    return offered + [Offer(info.name, info.title) for info in public()]


def _usable(actor: Actor, namespace: str) -> QuerySet[Dataset]:
    """Datasets that the actor may read and that everyone who sees a job of the namespace may see."""
    shown = Q(namespace__name=namespace) | Q(shares__namespace__name=namespace) | Q(visibility=Visibility.PUBLIC)
    usable = Dataset.objects.filter(shown).values("pk")
    return readable(actor).filter(deleted_at=None, pk__in=usable)


@dataclass(frozen=True)
class Resolved:
    """Dataset as a job uses it. ``version`` is None for a shipped dataset."""

    name: str
    version: Version | None


_MENTION = re.compile(r"(?P<ns>[^/@]+)/(?P<name>[^/@]+)(@(?P<version>[1-9][0-9]{0,8}))?")


def resolve(actor: Actor, namespace: str, mention: str) -> Resolved:
    """Return the sealed version that ``team/mine`` (the newest) or ``team/mine@3`` means for a job of the actor.

    ``namespace`` is the one in which the job is submitted. Raises NotFound with a message that says what to do.
    """
    match = _MENTION.fullmatch(mention)
    if match is None or mention.startswith(PUBLIC):
        return Resolved(find(mention).name, None)
    dataset = _usable(actor, namespace).filter(namespace__name=match["ns"], name=match["name"]).first()
    if dataset is None:
        raise NotFound(_why_not(actor, namespace, mention, match["ns"], match["name"]))
    version = _sealed(dataset, match["version"])
    if not version.records:
        raise NotFound(messages.VERSION_UNREADABLE(number=version.number, name=dataset.full_name))
    return Resolved(versioned(dataset.full_name, version.number), version)


def _sealed(dataset: Dataset, number: str | None) -> Version:
    version = latest(dataset)
    if number is not None:
        version = dataset.versions.filter(number=int(number), state=VersionState.SEALED).first()
    if version is None:
        newest = latest(dataset)
        advice = messages.NEWEST_VERSION(number=newest.number) if newest else messages.FILL_AND_SEAL_FIRST()
        if number:
            raise NotFound(messages.NO_SEALED_VERSION_NUMBER(name=dataset.full_name, number=number, advice=advice))
        raise NotFound(messages.NO_SEALED_VERSION(name=dataset.full_name, advice=advice))
    version.dataset = dataset
    return version


def _why_not(actor: Actor, namespace: str, mention: str, ns: str, name: str) -> str:
    if readable(actor).filter(deleted_at=None, namespace__name=ns, name=name).exists():
        return messages.NOT_SHARED_WITH_NAMESPACE(name=f"{ns}/{name}", namespace=namespace, owner=ns)
    known = [offer.name for offer in catalogue(actor, namespace)]
    near = difflib.get_close_matches(mention.partition("@")[0], known, n=3, cutoff=0.5)
    hint = (
        messages.DID_YOU_MEAN(name=" or ".join(near)) if near else messages.AVAILABLE_NAMES(names=", ".join(known[:20]))
    )
    return messages.DATASET_NOT_FOUND_FOR_JOB(name=f"{mention[:100]!r}", namespace=namespace, hint=hint)


# --- Shipped datasets ------------------------------------------------------------------------------------------------
def public() -> list[DatasetInfo]:
    """Return the datasets that are shipped with the portal, by name."""
    return [find(name) for name in shipped.names(data_path()) if name.startswith(PUBLIC)]


def find(name: str) -> DatasetInfo:
    """Return the shipped dataset of that name. Raises NotFound with the nearest names."""
    try:
        return shipped.find(name, data_path())
    except UnknownDataset as error:
        raise NotFound(str(error)) from None


def preview(info: DatasetInfo, split: str, count: int) -> list[dict[str, Any]]:
    """Return the first records of a split: ``{"features": nested lists, "label": number}``. Reads no more than
    these."""
    records = (record for chunk in shipped.chunks(info, split) for record in shipped.read_chunk(chunk))
    return [{"features": features.tolist(), "label": label} for features, label in islice(records, count)]
