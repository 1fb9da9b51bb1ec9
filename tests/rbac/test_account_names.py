"""Invalid names of accounts, wherever an account is opened, and accounts that had such a name before."""

from __future__ import annotations

import importlib

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.test import Client

from rbac import messages, namespace_names
from rbac.models import AuditEntry, User
from rbac.sign_in.external import _free_name
from tests.factories import make_user
from tests.messages import mentions, pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db
JSON = "application/json"
PASSWORD = "a few words to remember"
BAD = ["..", ".", "...", "-", "alice.", "\u0430lice"]
migration = importlib.import_module("rbac.migrations.0006_names_sessions_and_email")


@pytest.mark.parametrize("name", BAD)
def test_the_sign_up_form_refuses_them(name: str) -> None:
    form = {"username": name, "email": "x@example.org", "password": PASSWORD}
    assert Client().post("/sign-up", form).status_code == 422
    assert not User.objects.filter(username=name).exists()


@pytest.mark.parametrize("name", BAD)
def test_admins_cannot_open_them(personas: Personas, name: str) -> None:
    admin = personas.client("admin")
    assert admin.post("/api/v1/users", {"username": name, "password": PASSWORD}, JSON).status_code == 422
    admin.post("/admin/new-user", {"username": name, "email": "", "reason": "A colleague.", "by": "password"})
    assert not User.objects.filter(username=name).exists()


def test_the_command_of_the_operator_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    with pytest.raises(CommandError, match=pattern(messages.ACCOUNT_NAME_WITHOUT_LETTERS)):
        call_command("createsuperuser", interactive=False, username="..", email="")


@pytest.mark.parametrize("name", [*BAD, "@x", ""])
def test_an_account_from_a_provider_gets_another(name: str) -> None:
    assert namespace_names.fault_of_account(_free_name(name)) == ""


def test_an_account_from_a_provider_looks_like_no_other() -> None:
    make_user("ace")
    assert namespace_names.skeleton(_free_name("\u0430\u0441\u0435")) != "ace"


@pytest.mark.parametrize("name", ["ACE", "\u0430\u0441\u0435"])
def test_a_name_that_looks_like_another_s_is_taken(name: str) -> None:
    make_user("ace")
    answer = Client().post("/sign-up", {"username": name, "email": "x@example.org", "password": PASSWORD})
    assert mentions(answer.content.decode(), messages.ACCOUNT_NAME_LOOKS_TAKEN)


def test_accounts_with_such_a_name_get_another_and_the_audit_log_records_it() -> None:
    before, fine = make_user(".."), make_user("fine.")
    migration.rename_accounts(apps, None)
    after = User.objects.get(pk=before.pk)
    assert (after.username, after.skeleton) == (f"member-{before.pk}", f"member-{before.pk}")
    assert User.objects.get(pk=fine.pk).username == "fine."
    entry = AuditEntry.objects.get(action="user.rename")
    assert (entry.target, entry.after) == ("..", {"username": after.username})


def test_the_new_name_is_nobody_else_s() -> None:
    dots = make_user("..")
    make_user(f"member-{dots.pk}")
    migration.rename_accounts(apps, None)
    assert User.objects.get(pk=dots.pk).username == f"member-{dots.pk}-2"
