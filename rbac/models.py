"""Accounts, namespaces, roles, tokens, and the audit log."""

from __future__ import annotations

import uuid
from datetime import datetime
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.base_session import AbstractBaseSession
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Lower

from rbac import namespace_names


class Awaiting(models.TextChoices):
    """What an account that its owner opened still needs; until then it is not active."""

    CONFIRMATION = "confirmation"
    APPROVAL = "approval"


def validate_account_name(name: str) -> None:
    """Raise ValidationError for a text that cannot be the name of an account."""
    if fault := namespace_names.fault_of_account(name):
        raise ValidationError(fault)


class User(AbstractUser):
    """An account. ``is_staff`` is not used; ``is_superuser`` is the platform admin.

    A service account (``service_of``) belongs to a namespace, has no password, and acts only through its token. Its
    name holds a slash, which no person's name can.
    """

    username = models.CharField(
        "username",
        max_length=150,
        unique=True,
        validators=[UnicodeUsernameValidator(), validate_account_name],
        error_messages={"unique": "A user with that username already exists."},
    )
    # Equal for names that look alike: ``names.skeleton``.
    skeleton = models.CharField(max_length=namespace_names.SKELETON_LENGTH, db_index=True, editable=False)
    email = models.EmailField(blank=True)
    is_staff = None
    email_confirmed = models.DateTimeField(null=True, blank=True)
    awaiting = models.CharField(max_length=16, choices=Awaiting.choices, blank=True)
    service_of = models.ForeignKey(
        "Namespace", null=True, blank=True, on_delete=models.PROTECT, related_name="service_accounts"
    )

    # The scopes of the token that authenticated this request or socket. None: no token, or one without scopes.
    granted: frozenset[str] | None = None
    # The expiry of that token. None: no token, or one that does not expire.
    granted_until: datetime | None = None
    # The id of the namespace that the token is bound to. None: no token, or one for all namespaces of its account.
    granted_in: int | None = None

    class Meta(AbstractUser.Meta):
        constraints = [
            models.UniqueConstraint(Lower("email"), condition=~models.Q(email=""), name="one_account_per_address")
        ]

    def save(self, *args: Any, **options: Any) -> None:
        self.skeleton = namespace_names.skeleton(self.username)
        super().save(*args, **options)

    @property
    def is_admin(self) -> bool:
        return bool(self.is_superuser)


class Role(models.TextChoices):
    """A member's role in one namespace, from little to much."""

    VIEWER = "viewer"
    DEVELOPER = "developer"
    OWNER = "owner"


class Namespace(models.Model):
    """A team's space. The name is a DNS label: it is also the name of the Kubernetes namespace.

    A closed one is invisible to everybody. Its row and its name stay, so that its history is never taken for that of
    another namespace.
    """

    name = models.CharField(max_length=63, unique=True)
    personal_of = models.OneToOneField(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="personal_namespace"
    )
    created = models.DateTimeField(auto_now_add=True)
    closed = models.DateTimeField(null=True, blank=True)
    # Whether terminals of its jobs are recorded.
    record_terminals = models.BooleanField(default=False, db_default=False)
    members = models.ManyToManyField(User, through="Membership", related_name="namespaces")

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["namespace", "user"], name="one_membership_per_user")]


class Answer(models.TextChoices):
    """How an invitation ended."""

    ACCEPTED = "accepted"
    DECLINED = "declined"
    WITHDRAWN = "withdrawn"


class Invitation(models.Model):
    """The offer of a role in a namespace: to an account, or to the holder of the link that was sent to an address."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    namespace = models.ForeignKey(Namespace, on_delete=models.CASCADE, related_name="invitations")
    user = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField(blank=True)
    role = models.CharField(max_length=16, choices=Role.choices)
    # SHA-256 of the secret in the link; empty when the account itself is invited.
    digest = models.CharField(max_length=64, blank=True, db_index=True)
    invited_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    created = models.DateTimeField(auto_now_add=True)
    expires = models.DateTimeField()
    ended = models.DateTimeField(null=True, blank=True)
    answer = models.CharField(max_length=16, choices=Answer.choices, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["namespace", "user"], condition=models.Q(ended=None), name="one_open_invitation_per_account"
            ),
            models.UniqueConstraint(
                "namespace",
                Lower("email"),
                condition=models.Q(ended=None) & ~models.Q(email=""),
                name="one_open_invitation_per_address",
            ),
        ]


class Session(AbstractBaseSession):
    """A signed-in browser. ``handle`` names it on pages; the key, which is as good as a password, is not stored."""

    # The SHA-256 of the key: ``rbac.sign_in.sessions``.
    session_key = models.CharField(max_length=64, primary_key=True)
    handle = models.CharField(max_length=32, db_index=True)
    user = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="sessions")
    address = models.GenericIPAddressField(null=True)
    agent = models.CharField(max_length=200, blank=True)
    created = models.DateTimeField()
    seen = models.DateTimeField()

    @classmethod
    def get_session_store_class(cls) -> type[SessionBase]:
        store: type[SessionBase] = import_module(settings.SESSION_ENGINE).SessionStore
        return store


class RecoveryCode(models.Model):
    """A one-time replacement of the second factor. Only its SHA-256 is stored; ``second_factor`` explains why that is
    enough."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64)
    used = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "digest"], name="one_recovery_code_once")]


class ApiToken(models.Model):
    """A token of an account. Only its SHA-256 is stored; the token itself (``rgt_...``) is shown once."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    digest = models.CharField(max_length=64, unique=True)
    # The scopes that it is bound to; empty: all that its account may do.
    scopes = models.JSONField(default=list, blank=True)
    # The only namespace in which it may do something; null: all of its account.
    namespace = models.ForeignKey(
        Namespace, null=True, blank=True, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    created = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    expires = models.DateTimeField(null=True, blank=True)
    last_used = models.DateTimeField(null=True, blank=True)
    revoked = models.DateTimeField(null=True, blank=True)


class Connection(models.Model):
    """A person's grant to the command on a computer, until the command fetches its token. Only digests are stored."""

    digest = models.CharField(max_length=64, unique=True)  # of the code that the browser carries back
    challenge = models.CharField(max_length=43)  # of the verifier, which the command keeps secret
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="connections")
    name = models.CharField(max_length=100)
    days = models.PositiveSmallIntegerField(null=True, blank=True)
    expires = models.DateTimeField(db_index=True)


class OutgoingEmail(models.Model):
    """An e-mail that waits to be sent. It holds no link and no secret: both are made when it is sent."""

    template = models.CharField(max_length=32)
    to = models.EmailField()
    language = models.CharField(max_length=16)
    # Scheme and host of its links.
    origin = models.CharField(max_length=300)
    context = models.JSONField(default=dict)
    created = models.DateTimeField()
    # When to try it next. While a process sends it: when another process may.
    due = models.DateTimeField(db_index=True)
    tries = models.PositiveSmallIntegerField(default=0)


class FailedEmail(models.Model):
    """A failed e-mail, for the operator (``rbac.emails.failed_emails``). It names no person and no content."""

    template = models.CharField(max_length=32)
    # The part of the recipient's address after the @.
    domain = models.CharField(max_length=254)
    first = models.DateTimeField()
    last = models.DateTimeField(db_index=True)
    tries = models.PositiveIntegerField()
    # The class of the error, and the server's status if it sent one. Its text may quote the address.
    error = models.CharField(max_length=100)
    # The e-mail while it waits for its next try; null after it was sent or given up.
    email = models.OneToOneField(OutgoingEmail, null=True, on_delete=models.SET_NULL, related_name="failure")
    # The ``due`` that the last failure has set. If the e-mail has another one, a process is sending it.
    next_try = models.DateTimeField(null=True)
    sent = models.DateTimeField(null=True)


class Outcome(models.TextChoices):
    """The outcome of an action in the audit log."""

    DONE = "done"
    REFUSED = "refused"


class AuditEntry(models.Model):
    """Actor, action, target, time, address, reason and outcome. Written in the transaction of the action and never
    changed: the database refuses to (``rbac.audit.triggers``)."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    # Empty for the platform itself, and for anonymous callers.
    actor = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    # The admin who impersonated ``actor``.
    impersonator = models.ForeignKey(User, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    # The name instead of a foreign key: the audit log outlasts the namespace, whose deletion must not touch its rows.
    namespace = models.CharField(max_length=63, blank=True, db_index=True)
    action = models.CharField(max_length=64, db_index=True)
    target = models.CharField(max_length=200)
    detail = models.JSONField(default=dict)
    # The changed values, by name; null when nothing was changed.
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    outcome = models.CharField(max_length=16, choices=Outcome.choices, default=Outcome.DONE)
    # Free text of the actor.
    reason = models.CharField(max_length=500, blank=True)
    address = models.GenericIPAddressField(null=True, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
