"""Datasets, their versions, the files of a version, the parts in which a file comes, and what the storage keeps."""

from __future__ import annotations

import uuid

from django.db import models

from datasets.checksums import TEXT_LIMIT
from datasets.manifest import PATH_LIMIT
from datasets.states import VersionState
from rbac.models import Namespace, User
from runtime.data.format_selection import Unread

DESCRIPTION_LIMIT = 2000


class Visibility(models.TextChoices):
    """Who may read the sealed versions beside the members of the namespace."""

    PRIVATE = "private"
    PUBLIC = "public"


class Dataset(models.Model):
    """A named set of data in a namespace. A deleted one keeps its name until its grace is over."""

    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, related_name="datasets")
    name = models.CharField(max_length=63)
    description = models.CharField(max_length=DESCRIPTION_LIMIT, blank=True)
    format = models.CharField(max_length=32, blank=True)
    visibility = models.CharField(max_length=16, choices=Visibility.choices, default=Visibility.PRIVATE)
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "name"], name="one_data_set_per_name")]
        indexes = [models.Index(fields=["visibility", "deleted_at"])]

    def __str__(self) -> str:
        return self.full_name

    @property
    def full_name(self) -> str:
        """``<namespace>/<name>``, as jobs call it."""
        return f"{self.namespace.name}/{self.name}"


class Share(models.Model):
    """Another namespace whose members may read the sealed versions.

    Also for a name that no namespace has: an answer that differed would say which namespaces exist. Such a share is
    void and stays so: whoever creates a namespace of that name later reads nothing.
    """

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="shares")
    name = models.CharField(max_length=63)
    # The one that had the name when it was shared; empty: none had it.
    namespace = models.ForeignKey(Namespace, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["dataset", "name"], name="one_share_per_name")]


class Blob(models.Model):
    """The content of files, kept once a namespace: whether another namespace has the same is nobody's business.

    The row is there before the content is (``kept`` empty) and after it (``doomed``), so that a crash leaves nothing
    in the storage that no row knows of. ``home`` is the dataset that it is counted for.
    """

    namespace = models.ForeignKey(Namespace, on_delete=models.PROTECT, related_name="blobs")
    home = models.ForeignKey(Dataset, null=True, on_delete=models.SET_NULL, related_name="+")
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField()
    key = models.CharField(max_length=300, unique=True)
    created = models.DateTimeField()
    kept = models.DateTimeField(null=True, blank=True)
    doomed = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["namespace", "sha256"],
                condition=models.Q(kept__isnull=False, doomed=None),
                name="one_blob_per_content",
            )
        ]
        indexes = [models.Index(fields=["doomed", "kept"])]


class Version(models.Model):
    """One state of a dataset. Sealed, it never changes; ``manifest`` is then the key of its document."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(
        max_length=16, choices=[(state, state) for state in VersionState], default=VersionState.OPEN
    )
    why = models.TextField(blank=True)
    format = models.CharField(max_length=32, blank=True)
    # Bytes that were asked for when it was begun and are not spoken for by a file yet.
    reserved = models.BigIntegerField(default=0)
    # Sums over the files, made when it is sealed.
    files_count = models.PositiveIntegerField(default=0)
    size = models.BigIntegerField(default=0)
    records = models.BigIntegerField(null=True, blank=True)
    manifest = models.CharField(max_length=300, blank=True)
    # Until when the one who indexes it now has it to itself, and how often that was begun.
    claimed_until = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveSmallIntegerField(default=0)
    created = models.DateTimeField()
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    touched = models.DateTimeField()
    sealed = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["dataset", "number"], name="one_version_per_number")]
        indexes = [models.Index(fields=["state", "claimed_until"])]


class File(models.Model):
    """A file of a version. Until ``blob`` is there it is being received: ``staging`` names where its parts gather."""

    version = models.ForeignKey(Version, on_delete=models.CASCADE, related_name="files")
    path = models.CharField(max_length=PATH_LIMIT)
    # What no other file of the version may have: see ``manifest.folded``.
    folded = models.CharField(max_length=4 * PATH_LIMIT)
    size = models.BigIntegerField()
    part_size = models.BigIntegerField()
    # As announced, if it was; that of the content once ``blob`` is there.
    sha256 = models.CharField(max_length=64, blank=True)
    # Whoever begins anew gets another name: what still arrives for, or reads, the old one harms nobody.
    staging = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    # All parts are there and are being compared with the checksum: none may be replaced any more.
    frozen = models.BooleanField(default=False)
    blob = models.ForeignKey(Blob, null=True, blank=True, on_delete=models.PROTECT, related_name="files")
    # Found when the version is sealed: in which format jobs read it, and how many records; or why they read none.
    format = models.CharField(max_length=32, blank=True)
    unread = models.CharField(max_length=16, choices=[(why, why) for why in Unread], blank=True)
    records = models.BigIntegerField(null=True, blank=True)
    created = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["version", "folded"], name="one_file_per_path")]
        indexes = [models.Index(fields=["version", "path"])]

    @property
    def complete(self) -> bool:
        return self.blob_id is not None


class Part(models.Model):
    """A part of a file whose bytes are on the disk and fit their checksum. Where other bytes take their place, there is
    another row."""

    file = models.ForeignKey(File, on_delete=models.CASCADE, related_name="parts")
    number = models.PositiveIntegerField()
    checksum = models.CharField(max_length=TEXT_LIMIT)  # as of ``checksums.Checksum``

    class Meta:
        constraints = [models.UniqueConstraint(fields=["file", "number"], name="one_part_per_number")]
