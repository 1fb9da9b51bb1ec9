"""Names of accounts that are no path segment are replaced, sessions are found by the digest of their key, and e-mails
wait in a table until they are sent."""

from __future__ import annotations

from typing import Any

import django.contrib.auth.validators
from django.db import migrations, models
from django.db.models import F, Func

import rbac.models
from portal.common.migrating import check_rows
from rbac import namespace_names

_PLAIN_NAME = "member"
_CHUNK = 1000


def rename_accounts(apps: Any, schema_editor: Any) -> None:
    """Accounts without a letter or digit in their name get another one, with a row in the audit log."""
    users = apps.get_model("rbac", "User").objects
    entries = apps.get_model("rbac", "AuditEntry").objects
    last = 0
    while chunk := list(users.filter(pk__gt=last).order_by("pk").only("username")[:_CHUNK]):
        for user in chunk:
            old = user.username
            if not any(character.isalnum() for character in old):
                user.username = _free_name(users, user.pk)
                reason = "The name had no letter and no digit: as a part of an address it led elsewhere."
                changes = {"before": {"username": old}, "after": {"username": user.username}}
                entries.create(action="user.rename", target=old, detail={}, outcome="done", reason=reason, **changes)
            user.skeleton = namespace_names.skeleton(user.username)
        users.bulk_update(chunk, ["username", "skeleton"], batch_size=_CHUNK)
        last = chunk[-1].pk


def _free_name(users: Any, pk: int) -> str:
    name, number = f"{_PLAIN_NAME}-{pk}", 1
    while users.filter(username__iexact=name).exists():
        number += 1
        name = f"{_PLAIN_NAME}-{pk}-{number}"
    return name


class _HexSha256(Func):
    """SQLite has the function from Django, PostgreSQL of its own accord, for bytes."""

    function = "SHA256"
    output_field = models.CharField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "encode(sha256(convert_to(%(expressions)s, 'UTF8')), 'hex')"
        return self.as_sql(compiler, connection, template=template, **context)


def hash_session_keys(apps: Any, schema_editor: Any) -> None:
    """Who is signed in stays so."""
    apps.get_model("rbac", "Session").objects.update(session_key=_HexSha256(F("session_key")))


def end_sessions(apps: Any, schema_editor: Any) -> None:
    """Back: a digest leads to no key."""
    apps.get_model("rbac", "Session").objects.all().delete()


class Migration(migrations.Migration):
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
        check_rows(),
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
