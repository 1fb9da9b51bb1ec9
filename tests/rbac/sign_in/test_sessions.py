"""Sessions: listed for their owner, ended one by one or all at once."""

from __future__ import annotations

import importlib
from datetime import timedelta

import pytest
from django.apps import apps
from django.test import Client

from portal.common.clock import now
from rbac.models import Session
from rbac.sign_in.sessions import SessionStore
from tests.factories import make_user
from tests.personas import Personas

pytestmark = pytest.mark.django_db
PASSWORD = "a-long-enough-one"
migration = importlib.import_module("rbac.migrations.0006_names_sessions_and_email")


def browser(agent: str = "Firefox") -> Client:
    """A browser in which ada has signed in."""
    client = Client(headers={"user-agent": agent})
    assert client.post("/sign-in", {"username": "ada", "password": PASSWORD})["Location"] == "/"
    return client


@pytest.fixture(autouse=True)
def ada(db: None) -> None:
    make_user("ada", password=PASSWORD)


def test_a_session_shows_its_browser_and_address_but_never_its_key() -> None:
    client = browser("Netscape 4")
    page = client.get("/sessions").content.decode()
    assert "Netscape 4" in page
    assert "127.0.0.1" in page
    assert client.cookies["regatta-session"].value not in page


def test_signing_in_gives_a_fresh_key() -> None:
    client = Client()
    client.post("/language", {"language": "zh-hans"})
    session = client.session
    session["planted"] = "by somebody else"
    session.save()
    client.cookies["regatta-session"] = planted = session.session_key
    client.post("/sign-in", {"username": "ada", "password": PASSWORD})
    assert client.cookies["regatta-session"].value != planted
    assert Client(headers={"cookie": f"regatta-session={planted}"}).get("/tokens").status_code == 302


def test_one_session_is_ended_and_the_other_stays() -> None:
    here, there = browser(), browser("Chromium")
    handle = Session.objects.get(agent="Chromium").handle
    assert here.post(f"/sessions/{handle}/end")["Location"] == "/sessions"
    assert there.get("/tokens").status_code == 302
    assert here.get("/tokens").status_code == 200


def test_signing_out_everywhere_ends_all_and_this_one() -> None:
    here, there = browser(), browser()
    assert here.post("/sessions/end-all")["Location"] == "/sign-in"
    assert (here.get("/tokens").status_code, there.get("/tokens").status_code) == (302, 302)
    assert not Session.objects.filter(user__username="ada").exists()


def test_a_program_ends_the_sessions_of_its_account() -> None:
    here = browser()
    (row,) = here.get("/api/v1/sessions").json()["results"]
    assert here.delete(f"/api/v1/sessions/{row['id']}").status_code == 204
    assert here.get("/tokens").status_code == 302


def test_nobody_sees_or_ends_the_sessions_of_others(personas: Personas) -> None:
    browser("of ada")
    handle = Session.objects.get(agent="of ada").handle
    client = personas.client("admin")
    assert "of ada" not in client.get("/sessions").content.decode()
    assert client.post(f"/sessions/{handle}/end").status_code == 404
    assert Session.objects.filter(handle=handle).exists()


def test_when_a_session_was_last_seen_is_noted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    client = browser()
    first = Session.objects.get().seen
    client.get("/tokens")
    assert Session.objects.get().seen == first
    monkeypatch.setattr("rbac.middleware.now", lambda: now() + timedelta(minutes=11))
    client.get("/tokens")
    assert Session.objects.get().seen > first


# --- Contents of the database ----------------------------------------------------------------------------------------
@pytest.mark.invariant("A copy of the database does not let its holder sign in.")
def test_the_contents_of_the_database_sign_nobody_in() -> None:
    client = browser()
    row = Session.objects.get()
    assert client.cookies["regatta-session"].value not in str(Session.objects.values().get())
    for stolen in (row.session_key, row.handle):
        thief = Client(headers={"cookie": f"regatta-session={stolen}"})
        assert thief.get("/tokens").status_code == 302
    assert client.get("/tokens").status_code == 200


def test_signing_out_removes_the_row() -> None:
    client = browser()
    client.post("/sign-out")
    assert not Session.objects.filter(user__username="ada").exists()


def test_a_fresh_key_replaces_the_row_of_the_old_one() -> None:
    store = SessionStore()
    store["a"] = 1
    store.create()
    old = store.session_key
    store.cycle_key()
    assert not SessionStore().exists(old)
    assert SessionStore(store.session_key)["a"] == 1
    assert Session.objects.count() == 1


def test_sessions_from_before_stay_signed_in() -> None:
    client = browser()
    key = client.cookies["regatta-session"].value
    Session.objects.update(session_key=key)  # as the table held it
    migration.hash_session_keys(apps, None)
    assert client.get("/tokens").status_code == 200
