"""People, their rooms (namespaces), what they may do there, their tokens, and the trail of what was done."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models


class User(AbstractUser):
    """An account. ``is_staff`` is not used; ``is_superuser`` is the platform admin."""

    email = models.EmailField(blank=True)
    is_staff = None

    @property
    def is_admin(self) -> bool:
        return bool(self.is_superuser)


class Role(models.TextChoices):
    """A member's role in one namespace, from little to much."""

    VIEWER = "viewer"
    DEVELOPER = "developer"
    OWNER = "owner"


class Namespace(models.Model):
    """A team's room. The name is a DNS label: it is also the name of the Kubernetes namespace."""

    name = models.CharField(max_length=63, unique=True)
    personal_of = models.OneToOneField(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="personal_namespace"
    )
    created = models.DateTimeField(auto_now_add=True)
    members = models.ManyToManyField(User, through="Membership", related_name="namespaces")

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "user"], name="one_membership_per_user")]


class ApiToken(models.Model):
    """A personal token. Only its SHA-256 is kept; the token itself (``rgt_...``) is shown once."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True)
    created = models.DateTimeField(auto_now_add=True)
    expires = models.DateTimeField(null=True, blank=True)
    last_used = models.DateTimeField(null=True, blank=True)
    revoked = models.DateTimeField(null=True, blank=True)


class Outcome(models.TextChoices):
    """What became of a deed that the trail tells of."""

    DONE = "done"
    REFUSED = "refused"


class AuditEntry(models.Model):
    """Who did what to which thing, when, from where, why, and what came of it. Written in the transaction of the deed;
    never changed: the database refuses to (``rbac.append_only``)."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    # Empty for the platform itself, and for callers who are not signed in.
    actor = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    # The admin who acted as ``actor``.
    impersonator = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    # By name: the trail outlives the namespace, and nothing may touch its rows when that is deleted.
    namespace = models.CharField(max_length=63, blank=True, db_index=True)
    action = models.CharField(max_length=64, db_index=True)
    target = models.CharField(max_length=200)
    detail = models.JSONField(default=dict)
    # What was changed, by name; null where nothing was.
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    outcome = models.CharField(max_length=16, choices=Outcome.choices, default=Outcome.DONE)
    # The actor's own words.
    reason = models.CharField(max_length=500, blank=True)
    address = models.GenericIPAddressField(null=True, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
