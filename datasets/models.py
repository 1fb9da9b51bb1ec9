"""Datasets, their versions, files and upload parts, and the content in the storage."""

from __future__ import annotations

import uuid

from django.db import models

from datasets.checksums import TEXT_LIMIT
from datasets.manifest import PATH_LIMIT
from datasets.states import VersionState
from portal.common.message_field import MessageField
from rbac.models import Namespace, User
from runtime.data.format_selection import Unread

DESCRIPTION_LIMIT = 2000


class Visibility(models.TextChoices):
    """Who may read the sealed versions, in addition to the members of the namespace."""

    PRIVATE = "private"
    PUBLIC = "public"


class Dataset(models.Model):
    """Named dataset in a namespace. A deleted dataset keeps its name until its grace period ends."""

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
        """``<namespace>/<name>``, as in job specifications."""
        return f"{self.namespace.name}/{self.name}"


class Share(models.Model):
    """Another namespace whose members may read the sealed versions.

    A share may also name a namespace that does not exist: a different response would reveal which namespaces exist.
    Such a share is void and stays void, even if a namespace of that name is created later.
    """

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="shares")
    name = models.CharField(max_length=63)
    # The namespace that had the name when it was shared; null if there was none.
    namespace = models.ForeignKey(Namespace, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["dataset", "name"], name="one_share_per_name")]


class Blob(models.Model):
    """Content of files, stored once per namespace. Whether another namespace has the same content is never revealed.

    The row exists before the content (``kept`` is null) and after it (``doomed``), so that a crash leaves no content in
    the storage without a row. ``home`` is the dataset whose storage usage includes it.
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
    """Version of a dataset. A sealed version never changes; ``manifest`` is then the storage key of its manifest."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(
        max_length=16, choices=[(state, state) for state in VersionState], default=VersionState.OPEN
    )
    why = MessageField(blank=True)
    format = models.CharField(max_length=32, blank=True)
    # Bytes that were requested when the version was begun and are not yet assigned to a file.
    reserved = models.BigIntegerField(default=0)
    # Totals over the files, computed when the version is sealed.
    files_count = models.PositiveIntegerField(default=0)
    size = models.BigIntegerField(default=0)
    records = models.BigIntegerField(null=True, blank=True)
    manifest = models.CharField(max_length=300, blank=True)
    # End of the indexing worker's claim, and the number of indexing attempts.
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
    """File of a version. It is being received until ``blob`` is set; ``staging`` names the file that collects its
    parts."""

    version = models.ForeignKey(Version, on_delete=models.CASCADE, related_name="files")
    path = models.CharField(max_length=PATH_LIMIT)
    # Unique among the files of the version: see ``manifest.folded``.
    folded = models.CharField(max_length=4 * PATH_LIMIT)
    size = models.BigIntegerField()
    part_size = models.BigIntegerField()
    # The announced checksum, if any; that of the content once ``blob`` is set.
    sha256 = models.CharField(max_length=64, blank=True)
    # Changes when the upload starts over: late writers and readers of the old file do no harm.
    staging = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    # All parts are stored and are being compared with the checksum: none may be replaced.
    frozen = models.BooleanField(default=False)
    blob = models.ForeignKey(Blob, null=True, blank=True, on_delete=models.PROTECT, related_name="files")
    # Set when the version is sealed: the format in which jobs read the file and its number of records, or why it is not
    # read.
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
    """Part of a file whose bytes are on the disk and match their checksum.

    A part whose bytes are replaced gets a new row.
    """

    file = models.ForeignKey(File, on_delete=models.CASCADE, related_name="parts")
    number = models.PositiveIntegerField()
    checksum = models.CharField(max_length=TEXT_LIMIT)  # see ``checksums.Checksum``

    class Meta:
        constraints = [models.UniqueConstraint(fields=["file", "number"], name="one_part_per_number")]
