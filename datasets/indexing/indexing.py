"""Indexing after sealing: inspect the files of a version (``chunk_index``) and write the manifest.

A worker claims the version first and renews its claim. If it dies, another worker takes over when the claim expires.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from io import BytesIO

from django.db import transaction
from django.db.models import F, Q

from datasets import manifest, messages, states
from datasets.indexing import previews
from datasets.indexing.chunk_index import Inspection, Unindexable
from datasets.manifest import Manifest
from datasets.models import File, Version
from datasets.states import Event, VersionState
from datasets.storage import default_storage
from portal.common.clock import now as wall_clock
from portal.common.errors import RegattaError

_log = logging.getLogger(__name__)

CLAIM = timedelta(minutes=15)
RENEW = CLAIM / 5
TRIES = 3
_AT_ONCE = 500  # rows that are updated together


class TakenOver(Exception):
    """Another worker indexes the version now, or it has been deleted."""


def index(version_id: int) -> None:
    """Index a version that is being sealed, unless another worker does. The version becomes ``sealed`` or ``failed``.

    Temporary errors, such as unreachable storage, are left to the next try.
    """
    version = _claim(version_id)
    if version is None:
        return
    try:
        inspection = Inspection(version, _renewal(version))
        made = inspection.manifest()
        key = f"manifests/{version.dataset_id}/{version.number}.json"
        default_storage().put(key, BytesIO(made.dump()))
        previews.make(version, made)
    except TakenOver:
        _log.info("Version %s is not indexed to its end here: it was deleted, or is indexed elsewhere.", version.pk)
    except (Unindexable, manifest.BadManifest) as fault:
        _fail(version, str(fault))
    except (RegattaError, OSError) as fault:
        _release_claim(version, fault)
    else:
        _seal(version, inspection, made, key)


def due() -> list[int]:
    """Return the ids of versions that wait to be indexed, including those whose claim has expired."""
    waiting = Q(claimed_until=None) | Q(claimed_until__lt=wall_clock())
    return list(Version.objects.filter(waiting, state=VersionState.INDEXING).values_list("pk", flat=True))


def _claim(version_id: int) -> Version | None:
    now = wall_clock()
    free = Q(claimed_until=None) | Q(claimed_until__lt=now)
    rows = Version.objects.filter(free, pk=version_id, state=VersionState.INDEXING)
    if not rows.update(claimed_until=now + CLAIM, tries=F("tries") + 1):
        return None
    version = Version.objects.select_related("dataset__namespace").get(pk=version_id)
    if version.tries > TRIES:  # all earlier workers died
        _fail(version, messages.INDEXING_NEVER_FINISHED(tries=TRIES))
        return None
    return version


def _renewal(version: Version) -> Callable[[], None]:
    """Return a function that renews the claim; call it often. It raises TakenOver if the claim is lost."""
    due = time.monotonic() + RENEW.total_seconds()

    def renew() -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        until = wall_clock() + CLAIM
        ours = Version.objects.filter(pk=version.pk, state=VersionState.INDEXING, claimed_until=version.claimed_until)
        if not ours.update(claimed_until=until):
            raise TakenOver
        version.claimed_until, due = until, time.monotonic() + RENEW.total_seconds()

    return renew


def _release_claim(version: Version, fault: Exception) -> None:
    _log.warning("Version %s could not be indexed (try %s).", version.pk, version.tries, exc_info=fault)
    if version.tries >= TRIES:
        _fail(version, messages.INDEXING_STORAGE_UNREADABLE())
    else:
        pause = timedelta(seconds=10 * 4**version.tries)
        Version.objects.filter(pk=version.pk, state=VersionState.INDEXING).update(claimed_until=wall_clock() + pause)


def _fail(version: Version, why: str) -> None:
    state = states.step(VersionState.INDEXING, Event.REFUSED, version.number)
    rows = Version.objects.filter(pk=version.pk, state=VersionState.INDEXING, claimed_until=version.claimed_until)
    rows.update(state=state, why=why, claimed_until=None)


@transaction.atomic
def _seal(version: Version, inspection: Inspection, made: Manifest, key: str) -> None:
    """Seal by compare-and-set: a version that was deleted or claimed by another worker stays unchanged."""
    state = states.step(VersionState.INDEXING, Event.INDEXED, version.number)
    rows = Version.objects.filter(pk=version.pk, state=VersionState.INDEXING, claimed_until=version.claimed_until)
    sealed = rows.update(
        state=state,
        why="",
        format=inspection.format,
        files_count=len(made.files),
        size=made.size,
        records=made.records,
        manifest=key,
        sealed=wall_clock(),
        claimed_until=None,
    )
    if sealed:
        _record_formats(version, inspection, made)


def _record_formats(version: Version, inspection: Inspection, made: Manifest) -> None:
    """Record for each file how it is read."""
    records = {entry.path: entry.records for entry in made.files}
    files = []
    for pk, path in version.files.values_list("pk", "path"):
        format_, unread = inspection.chosen[path]
        files.append(File(pk=pk, format=format_, unread=unread or "", records=records[path]))
    File.objects.bulk_update(files, ["format", "unread", "records"], batch_size=_AT_ONCE)
