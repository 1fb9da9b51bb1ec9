"""Database rows for tests, each valid by itself; a test sets only the relevant fields."""

from __future__ import annotations

import itertools
import uuid
from datetime import UTC, datetime
from typing import Any

from jobs.lifecycle.state_machine import JobState
from jobs.models import Attempt, CodeSnapshot, Job
from rbac.models import ApiToken, Membership, Namespace, Role, User
from rbac.selectors import digest_of

_numbers = itertools.count(1)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def make_user(username: str = "", *, password: str | None = None, admin: bool = False) -> User:
    """Create an account. Without a password, ``client.force_login`` works and is quick."""
    user = User(username=username or f"user{next(_numbers)}", is_superuser=admin)
    user.set_password(password) if password else user.set_unusable_password()
    user.save()
    return user


def make_namespace(name: str = "", *, owner: User | None = None) -> Namespace:
    namespace = Namespace.objects.create(name=name or f"team{next(_numbers)}")
    if owner is not None:
        make_member(namespace, owner, Role.OWNER)
    return namespace


def make_member(namespace: Namespace, user: User, role: Role = Role.DEVELOPER) -> Membership:
    return Membership.objects.create(namespace=namespace, user=user, role=role)


def make_token(user: User, **fields: Any) -> str:
    """Create a personal token and return its secret."""
    secret = f"rgt_{uuid.uuid4().hex}"
    ApiToken.objects.create(user=user, name=fields.pop("name", "test"), digest=digest_of(secret), **fields)
    return secret


def make_job(namespace: Namespace | None = None, owner: User | None = None, **fields: Any) -> Job:
    """Create a job as after its submission, without any attempt. ``fields`` are those of the model."""
    owner = owner or make_user()
    namespace = namespace or make_namespace(owner=owner)
    digest = fields.pop("digest", uuid.uuid4().hex * 2)
    snapshot, _ = CodeSnapshot.objects.get_or_create(digest=digest, defaults={"size": 1})
    return Job.objects.create(
        namespace=namespace,
        owner=owner,
        snapshot=snapshot,
        **{"name": "digits", "spec": {}, "state": JobState.QUEUED, "created": LONG_AGO, "changed": LONG_AGO, **fields},
    )


def make_attempt(job: Job, number: int = 1, *, token: str = "", **fields: Any) -> Attempt:
    """Create an attempt of a job. ``token`` is that of its agents."""
    return Attempt.objects.create(
        job=job, number=number, token_digest=digest_of(token), **{"created": LONG_AGO, **fields}
    )
