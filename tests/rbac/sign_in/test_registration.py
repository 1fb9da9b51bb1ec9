"""Registration of accounts, password resets, and approval by an admin."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.core import mail
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from portal.common.clock import now
from rbac import messages
from rbac.emails import outbox
from rbac.models import Membership, OutgoingEmail, Session, User
from rbac.selectors import token_behind
from rbac.sign_in.registration import CONFIRMATION_LIFETIME
from tests.factories import make_token, make_user
from tests.messages import mentions
from tests.personas import Personas

pytestmark = pytest.mark.django_db
PASSWORD = "a few words to remember"
ADDRESS = "ada@example.org"
FORM = {"username": "ada", "email": ADDRESS, "password": PASSWORD}


def main_part(answer: HttpResponse) -> str:
    """Return the text of the page, without the parts that differ between two requests anyway."""
    found = re.search(r"<main.*</main>", answer.content.decode(), re.DOTALL)
    assert found
    return found[0]


def sent() -> list[mail.EmailMessage]:
    """Send waiting e-mails, as the sweep does, and return all."""
    outbox.send_due(now())
    return list(mail.outbox)


def link(number: int = -1) -> str:
    """Return the path of the link in an e-mail."""
    found = re.search(r"http://testserver(/\S+)", str(sent()[number].body))
    assert found
    return found[1]


def sign_in(client: Client, password: str = PASSWORD) -> str:
    return client.post("/sign-in", {"username": "ada", "password": password}).headers.get("Location", "")


def open_account(client: Client) -> None:
    client.post("/sign-up", FORM)
    client.post(link(), {"password": PASSWORD})


# --- Opening ---------------------------------------------------------------------------------------------------------
def test_from_the_form_to_the_page_of_next_steps() -> None:
    client = Client()
    assert ADDRESS in client.post("/sign-up", FORM).content.decode()
    assert sign_in(client) == ""
    assert client.post(link(), {"password": PASSWORD})["Location"] == "/sign-in"
    assert sign_in(client) == "/welcome"
    assert "/n/ada/jobs/new" in client.get("/welcome").content.decode()
    assert Membership.objects.get(user__username="ada").role == "owner"


def test_the_welcome_comes_once() -> None:
    client = Client()
    open_account(client)
    assert sign_in(client) == "/welcome"
    client.post("/sign-out")
    assert sign_in(client) == "/"


def test_a_page_requested_before_sign_in_is_opened() -> None:
    client = Client()
    open_account(client)
    answer = client.post("/sign-in", {"username": "ada", "password": PASSWORD, "next": "/tokens"})
    assert answer["Location"] == "/tokens"


def test_an_unconfirmed_account_is_reported_only_with_the_password() -> None:
    client = Client()
    client.post("/sign-up", FORM)
    statuses = client.post("/sign-in", {"username": "ada", "password": PASSWORD}).content.decode()
    assert mentions(statuses, messages.CONFIRMATION_PENDING)
    guessed = client.post("/sign-in", {"username": "ada", "password": "wrong"}).content.decode()
    assert messages.CREDENTIALS_WRONG() in guessed


def test_a_look_at_the_link_confirms_nothing() -> None:
    Client().post("/sign-up", FORM)
    assert Client().get(link()).status_code == 200
    assert not User.objects.get(username="ada").is_active


def test_the_owner_of_an_address_is_not_talked_into_the_account_of_another() -> None:
    Client().post("/sign-up", FORM)
    answer = Client().post(link(), {"password": "what the owner would write"})
    assert answer.status_code == 422
    assert not User.objects.get(username="ada").is_active


def test_a_link_is_good_once() -> None:
    client = Client()
    open_account(client)
    assert client.post(link(), {"password": PASSWORD}).status_code == 409


def test_a_link_is_good_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    Client().post("/sign-up", FORM)
    path = link()
    later = time.time() + CONFIRMATION_LIFETIME.total_seconds() + 1
    monkeypatch.setattr("django.core.signing.time.time", lambda: later)
    assert Client().get(path).status_code == 409


def test_nobody_learns_which_addresses_have_accounts() -> None:
    make_user("grace")
    User.objects.update(email=ADDRESS.upper())
    answer = Client().post("/sign-up", FORM)
    fresh = Client().post("/sign-up", {**FORM, "email": "new@example.org", "username": "other"})
    assert main_part(answer).replace(ADDRESS, "") == main_part(fresh).replace("new@example.org", "")
    assert "grace" in sent()[0].body
    assert not User.objects.filter(username="ada").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("username", ""),
        ("username", "not a name"),
        ("username", "team/ada"),
        ("username", "GRACE"),
        ("email", ""),
        ("email", "no address"),
        ("password", "short"),
        ("password", "password1234"),
        ("password", ""),
    ],
)
def test_a_refused_form_has_the_reason_beside_the_field_and_opens_nothing(field: str, value: str) -> None:
    make_user("grace")
    answer = Client().post("/sign-up", {**FORM, field: value})
    assert answer.status_code == 422
    assert f'id="{field}-error"' in answer.content.decode()
    assert not User.objects.filter(username="ada").exists()
    assert sent() == []


@pytest.mark.parametrize("address", ["a`id`@example.org", "a|id@example.org", '"../../x"@example.org'])
def test_an_address_with_characters_of_shells_and_paths_is_an_address(address: str) -> None:
    Client().post("/sign-up", {**FORM, "email": address})
    assert sent()[0].to == [address]
    Client().post(link(), {"password": PASSWORD})
    assert User.objects.get(username="ada").is_active


def test_emails_to_one_address_are_limited() -> None:
    statuses = [Client().post("/password", {"email": ADDRESS}).status_code for _ in range(6)]
    assert statuses == [200] * 5 + [429]


def test_a_closed_portal_opens_no_accounts(settings) -> None:
    settings.SIGN_UP = "closed"
    assert Client().get("/sign-up").status_code == 403
    assert Client().post("/sign-up", FORM).status_code == 403
    assert "/sign-up" not in Client().get("/sign-in").content.decode()


# --- Time and e-mail -------------------------------------------------------------------------------------------------
def test_an_account_is_opened_with_as_many_hashes_as_one_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    make_user("grace")
    User.objects.update(email=ADDRESS)
    hashed: list[str] = []
    encode = MD5PasswordHasher.encode

    def counted(hasher: MD5PasswordHasher, password: str, salt: str) -> str:
        hashed.append(password)
        return str(encode(hasher, password, salt))

    monkeypatch.setattr(MD5PasswordHasher, "encode", counted)
    Client().post("/sign-up", FORM)
    assert len(hashed) == 1
    Client().post("/sign-up", {**FORM, "email": "new@example.org", "username": "other"})
    assert len(hashed) == 2


def test_a_request_neither_sends_an_e_mail_nor_reads_accounts(ada: User) -> None:
    asked = []
    for address in (ADDRESS, "no@example.org"):
        with CaptureQueriesContext(connection) as queries:
            Client().post("/password", {"email": address})
        asked.append([query["sql"].partition("(")[0] for query in queries if "SAVEPOINT" not in query["sql"]])
    assert mail.outbox == []
    assert asked[0] == asked[1]
    assert any("INSERT" in query for query in asked[0])
    assert not any("rbac_user" in query for query in asked[0])
    assert len(sent()) == 1


def test_no_waiting_e_mail_holds_a_link(ada: User, personas: Personas) -> None:
    Client().post("/password", {"email": ADDRESS})
    Client().post("/sign-up", {**FORM, "email": "new@example.org", "username": "other"})
    personas.client("owner").post("/n/team/invitations", {"who": "x@example.org", "role": "viewer"})
    rows = str(list(OutgoingEmail.objects.values()))
    links = [word for each in sent() for word in str(each.body).split() if word.startswith("http")]
    assert len(links) == 3
    assert not any(address.rsplit("/", 1)[-1] in rows for address in links)
    assert not OutgoingEmail.objects.exists()


@pytest.fixture
def server_is_away(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Run while the list is not empty."""
    away, send_mail = [True], mail.send_mail

    def send(*args: Any) -> Any:
        if away:
            raise OSError("The mail server is away.")
        return send_mail(*args)

    monkeypatch.setattr("rbac.emails.mail.send_mail", send)
    return away


def test_a_refused_email_is_tried_again_later(ada: User, server_is_away: list[bool]) -> None:
    Client().post("/password", {"email": ADDRESS})
    assert outbox.send_due(now()) == 0
    server_is_away.clear()
    assert outbox.send_due(now()) == 0
    assert outbox.send_due(now() + timedelta(minutes=2)) == 1


def test_an_email_that_is_refused_for_long_is_given_up(ada: User, server_is_away: list[bool]) -> None:
    Client().post("/password", {"email": ADDRESS})
    for number in range(outbox.TRIES_LIMIT):
        outbox.send_due(now() + timedelta(days=number))
    assert not OutgoingEmail.objects.exists()


def test_so_many_emails_are_read_at_once_and_the_rest_with_the_next_sweep(
    ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "AT_ONCE", 1)
    for _ in range(2):
        Client().post("/password", {"email": ADDRESS})
    assert [outbox.send_due(now()) for _ in range(3)] == [1, 1, 0]


def test_an_email_claimed_by_another_process_is_not_sent_twice(ada: User) -> None:
    Client().post("/password", {"email": ADDRESS})
    row = OutgoingEmail.objects.get()
    OutgoingEmail.objects.update(due=now() + outbox.CLAIM)  # another process has claimed it
    assert not outbox._try(row, now())
    assert mail.outbox == []


def test_a_stranger_does_not_use_up_the_e_mails_of_an_owner(ada: User) -> None:
    stranger, owner = Client(REMOTE_ADDR="192.0.2.9"), Client(REMOTE_ADDR="192.0.2.1")
    statuses = [stranger.post("/password", {"email": ADDRESS}).status_code for _ in range(6)]
    assert statuses == [200] * 5 + [429]
    assert owner.post("/password", {"email": ADDRESS}).status_code == 200


@pytest.mark.parametrize(("form", "stay"), [({}, False), ({"keep_tokens": "on"}, True)])
def test_a_changed_password_revokes_tokens_unless_they_are_to_be_kept(ada: User, form: dict, stay: bool) -> None:
    secret, here = make_token(ada), Client()
    sign_in(here)
    here.post("/account/password", {"old": PASSWORD, "new": "another few words", **form})
    assert (token_behind(secret, now()) is not None) is stay


def test_a_password_chosen_by_a_link_revokes_tokens(ada: User) -> None:
    secret = make_token(ada)
    Client().post("/password", {"email": ADDRESS})
    Client().post(link(), {"password": "another few words"})
    assert token_behind(secret, now()) is None


def test_an_admin_s_reset_revokes_tokens(ada: User, personas: Personas) -> None:
    secret = make_token(ada)
    personas.client("admin").post("/admin/users/ada/reset-password", {"reason": "It was stolen."})
    assert token_behind(secret, now()) is None


# --- Approval --------------------------------------------------------------------------------------------------------
@pytest.fixture
def waiting(settings, personas: Personas) -> Client:
    """A browser of ada, who has confirmed her address and waits for approval."""
    settings.SIGN_UP = "approval"
    personas.admin.email = "root@example.org"
    personas.admin.save()
    client = Client()
    open_account(client)
    return client


def test_an_admin_is_notified_and_approves(waiting: Client, personas: Personas) -> None:
    assert sent()[-1].to == ["root@example.org"]
    assert sign_in(waiting) == ""
    admin = personas.client("admin")
    assert "ada" in admin.get(link()).content.decode()
    assert admin.post("/waiting/ada/approve")["Location"] == "/waiting"
    assert sent()[-1].to == [ADDRESS]
    assert sign_in(waiting) == "/welcome"


def test_a_refused_account_cannot_sign_in(waiting: Client, personas: Personas) -> None:
    personas.client("admin").post("/waiting/ada/refuse")
    assert sign_in(waiting) == ""
    assert "ada" not in personas.client("admin").get("/waiting").content.decode()


def test_a_waiting_account_learns_that_an_admin_decides(waiting: Client) -> None:
    statuses = waiting.post("/sign-in", {"username": "ada", "password": PASSWORD}).content.decode()
    assert mentions(statuses, messages.APPROVAL_PENDING)


# --- Passwords -------------------------------------------------------------------------------------------------------
@pytest.fixture
def ada() -> User:
    user = make_user("ada", password=PASSWORD)
    user.email = ADDRESS
    user.save()
    return user


def test_a_password_reset_ends_all_sessions(ada: User) -> None:
    here = Client()
    assert sign_in(here) == "/"
    Client().post("/password", {"email": ADDRESS.upper()})
    path = link()
    assert Client().post(path, {"password": "another few words"})["Location"] == "/sign-in"
    assert here.get("/tokens").status_code == 302
    assert sign_in(Client(), "another few words") == "/"
    assert Client().get(path).status_code == 409


def test_an_address_without_an_account_gets_no_email_and_the_same_page(ada: User) -> None:
    known = main_part(Client().post("/password", {"email": ADDRESS}))
    unknown = main_part(Client().post("/password", {"email": "x@example.org"}))
    assert known.replace(ADDRESS, "") == unknown.replace("x@example.org", "")
    assert len(sent()) == 1


def test_a_weak_new_password_is_refused_and_the_link_stays_good(ada: User) -> None:
    Client().post("/password", {"email": ADDRESS})
    assert Client().post(link(), {"password": "short"}).status_code == 422
    assert Client().get(link()).status_code == 200


@pytest.mark.parametrize("who", ["MQ", "", "x", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "%00"])
def test_links_that_are_made_up_lead_nowhere(ada: User, who: str) -> None:
    assert Client().get(f"/password/{who}/c0-ffee").status_code in (404, 409)


def test_changing_the_password_needs_it_and_signs_out_other_browsers(ada: User) -> None:
    here, there = Client(), Client()
    sign_in(here), sign_in(there)
    page = here.post("/account/password", {"old": PASSWORD, "new": "another few words"}, follow=True)
    assert "The password has been changed." in page.content.decode()
    assert (here.get("/tokens").status_code, there.get("/tokens").status_code) == (200, 302)


@pytest.mark.parametrize(("old", "new"), [("wrong", "another few words"), (PASSWORD, "short")])
def test_an_unchangeable_password_stays(ada: User, old: str, new: str) -> None:
    here = Client()
    sign_in(here)
    here.post("/account/password", {"old": old, "new": new})
    assert sign_in(Client()) == "/"
    assert Session.objects.filter(user=ada).exists()
