"""Names of accounts that are no path segment are replaced, sessions are found by the digest of their key, and e-mails
wait in a table until they are sent."""

from __future__ import annotations

import hashlib
from typing import Any

import django.contrib.auth.validators
from django.db import migrations, models

import rbac.models
from rbac import names

_PLAIN_NAME = "member"


def rename_accounts(apps: Any, schema_editor: Any) -> None:
    """Accounts without a letter or digit in their name get another one, with a row in the audit log."""
    users = apps.get_model("rbac", "User").objects
    entries = apps.get_model("rbac", "AuditEntry").objects
    for pk, old in users.values_list("pk", "username"):
        name = old
        if not any(character.isalnum() for character in old):
            name, number = f"{_PLAIN_NAME}-{pk}", 1
            while users.filter(username__iexact=name).exists():
                number += 1
                name = f"{_PLAIN_NAME}-{pk}-{number}"
            reason = "The name had no letter and no digit: as a part of an address it led elsewhere."
            changes = {"before": {"username": old}, "after": {"username": name}}
            entries.create(action="user.rename", target=old, detail={}, outcome="done", reason=reason, **changes)
        users.filter(pk=pk).update(username=name, skeleton=names.skeleton(name))


def hash_session_keys(apps: Any, schema_editor: Any) -> None:
    """Who is signed in stays so."""
    sessions = apps.get_model("rbac", "Session").objects
    for key in list(sessions.values_list("session_key", flat=True)):
        sessions.filter(session_key=key).update(session_key=hashlib.sha256(key.encode()).hexdigest())


def end_sessions(apps: Any, schema_editor: Any) -> None:
    """Back: a digest leads to no key."""
    apps.get_model("rbac", "Session").objects.all().delete()


class Migration(migrations.Migration):
    # PostgreSQL does not change a table while changes of its rows have deferred checks pending.
    atomic = False
    dependencies = [("rbac", "0005_connections")]

    operations = [
        migrations.AddField("user", "skeleton", models.CharField(default="", editable=False, max_length=600)),
        migrations.AlterField(
            "user",
            "username",
            models.CharField(
                error_messages={"unique": "A user with that username already exists."},
                max_length=150,
                unique=True,
                validators=[
                    django.contrib.auth.validators.UnicodeUsernameValidator(),
                    rbac.models.validate_account_name,
                ],
                verbose_name="username",
            ),
        ),
        migrations.RunPython(rename_accounts, migrations.RunPython.noop),
        migrations.AlterField(
            "user", "skeleton", models.CharField(db_index=True, editable=False, max_length=600)
        ),
        migrations.AlterField(
            "session", "session_key", models.CharField(max_length=64, primary_key=True, serialize=False)
        ),
        migrations.RunPython(hash_session_keys, end_sessions),
        migrations.CreateModel(
            name="OutgoingEmail",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("template", models.CharField(max_length=32)),
                ("to", models.EmailField(max_length=254)),
                ("language", models.CharField(max_length=16)),
                ("origin", models.CharField(max_length=300)),
                ("context", models.JSONField(default=dict)),
                ("created", models.DateTimeField()),
                ("due", models.DateTimeField(db_index=True)),
                ("tries", models.PositiveSmallIntegerField(default=0)),
            ],
        ),
    ]
