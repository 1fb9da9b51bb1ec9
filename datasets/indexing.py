"""What follows sealing: the files of a version are looked through, their chunks found, and the manifest is written.

No code of users runs here, only the parsers of ``runtime.data``, which believe no size before they have compared it
with the file. Whoever indexes claims the version first; where they die, another takes over when the claim has run out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from io import BytesIO
from pathlib import Path

from django.db import transaction
from django.db.models import F, Q

from datasets import manifest, states
from datasets.manifest import Chunk, Entry, Manifest
from datasets.models import File, Version
from datasets.states import Event, VersionState
from datasets.storage import default_storage
from portal.common.errors import RegattaError
from portal.common.time import now as wall_clock
from runtime.data import recordio
from runtime.errors import RegattaError as RuntimeFault

_log = logging.getLogger(__name__)

CLAIM = timedelta(minutes=15)
TRIES = 3
RECORDIO, FILES = "recordio", "files"


class Unindexable(Exception):
    """A file is not what it says it is. The text is the sentence that the version fails with."""


def index(version_id: int) -> None:
    """Index a version that is being sealed, unless somebody does already. Ends in ``sealed`` or ``failed``; what may
    pass by itself (a storage that is away) is left to the next try."""
    version = _claim(version_id)
    if version is None:
        return
    try:
        made = _manifest(version)
        key = f"manifests/{version.dataset_id}/{version.number}.json"
        default_storage().put(key, BytesIO(made.dump()))
    except (Unindexable, manifest.BadManifest) as fault:
        _fail(version, str(fault))
    except (RegattaError, OSError) as fault:
        _give_back(version, fault)
    else:
        _seal(version, made, key)


def due() -> list[int]:
    """The versions that wait to be indexed, and those whose claim has run out."""
    waiting = Q(claimed_until=None) | Q(claimed_until__lt=wall_clock())
    return list(Version.objects.filter(waiting, state=VersionState.INDEXING).values_list("pk", flat=True))


def _claim(version_id: int) -> Version | None:
    now = wall_clock()
    free = Q(claimed_until=None) | Q(claimed_until__lt=now)
    rows = Version.objects.filter(free, pk=version_id, state=VersionState.INDEXING)
    if not rows.update(claimed_until=now + CLAIM, tries=F("tries") + 1):
        return None
    return Version.objects.select_related("dataset__namespace").get(pk=version_id)


def _give_back(version: Version, fault: Exception) -> None:
    _log.warning("Version %s could not be indexed (try %s).", version.pk, version.tries, exc_info=fault)
    if version.tries >= TRIES:
        _fail(version, "The files could not be read from the storage. Seal the version again, or ask the operator.")
    else:
        pause = timedelta(seconds=10 * 4**version.tries)
        Version.objects.filter(pk=version.pk, state=VersionState.INDEXING).update(claimed_until=wall_clock() + pause)


def _fail(version: Version, why: str) -> None:
    state = states.step(VersionState.INDEXING, Event.REFUSED, version.number)
    rows = Version.objects.filter(pk=version.pk, state=VersionState.INDEXING, claimed_until=version.claimed_until)
    rows.update(state=state, why=why, claimed_until=None)


@transaction.atomic
def _seal(version: Version, made: Manifest, key: str) -> None:
    """By compare-and-set: a version that was deleted or claimed by another meanwhile is left alone."""
    state = states.step(VersionState.INDEXING, Event.INDEXED, version.number)
    rows = Version.objects.filter(pk=version.pk, state=VersionState.INDEXING, claimed_until=version.claimed_until)
    sealed = rows.update(
        state=state,
        why="",
        format=version.format,
        files_count=len(made.files),
        size=made.size,
        records=made.records,
        manifest=key,
        sealed=wall_clock(),
        claimed_until=None,
    )
    if sealed:
        counted = {entry.path: entry.records for entry in made.files if entry.records is not None}
        for file in version.files.filter(path__in=counted).iterator():
            File.objects.filter(pk=file.pk).update(records=counted[file.path])


# --- Looking through -------------------------------------------------------------------------------------------------
def _manifest(version: Version) -> Manifest:
    files = version.files.select_related("blob").order_by("path")
    names = {path.rpartition(".")[2].lower() for path in files.values_list("path", flat=True)}
    version.format = version.dataset.format or _format_of(names)
    entries = tuple(_entry(file, FORMATS[version.format]) for file in files.iterator())
    return Manifest(version.dataset.full_name, version.number, entries)


def _format_of(endings: set[str]) -> str:
    return RECORDIO if RECORDIO in endings else FILES


def _entry(file: File, chunks_of: Callable[[str, Path], tuple[Chunk, ...] | None]) -> Entry:
    assert file.blob is not None  # noqa: S101  only whole files are sealed
    path = default_storage().local_path(file.blob.key)
    if path is None:
        return Entry(file.path, file.size, file.sha256)
    chunks = chunks_of(file.path, path)
    records = None if chunks is None else sum(chunk.records for chunk in chunks)
    return Entry(file.path, file.size, file.sha256, records, chunks or ())


def _recordio(name: str, path: Path) -> tuple[Chunk, ...] | None:
    if not name.lower().endswith(f".{RECORDIO}"):
        return None
    try:
        return tuple(Chunk(span.offset, span.length, span.records) for span in recordio.scan(path))
    except RuntimeFault as fault:
        raise Unindexable(f"{name!r} is no whole RecordIO file: {str(fault).replace(str(path), name)}") from fault


def _plain(name: str, path: Path) -> None:
    """Files as they are: nothing is known of what they hold."""


FORMATS: Mapping[str, Callable[[str, Path], tuple[Chunk, ...] | None]] = {RECORDIO: _recordio, FILES: _plain}
