"""The second factor: setup, sign-in, removal, and the requirement for admins."""

from __future__ import annotations

import contextlib
import re
import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from django_otp.oath import TOTP
from django_otp.plugins.otp_totp.models import TOTPDevice

from rbac import messages
from rbac.models import RecoveryCode, User
from rbac.sign_in import second_factor
from tests.factories import make_user
from tests.messages import mentions
from tests.personas import Personas

pytestmark = pytest.mark.django_db
PASSWORD = "a-long-enough-one"
JSON = "application/json"


class Phone:
    """An authenticator app. It shows each code once: the next one is of a later moment."""

    def __init__(self, user: User, clock: pytest.MonkeyPatch) -> None:
        self._user, self._clock, self._now = user, clock, timezone.now().timestamp()

    def code(self) -> str:
        self._now += 30
        self._clock.setattr("django_otp.plugins.otp_totp.models.time.time", lambda: self._now)
        totp = TOTP(TOTPDevice.objects.get(user=self._user).bin_key)
        totp.time = self._now
        return f"{totp.token():06}"


@pytest.fixture
def ada(db: None) -> User:
    return make_user("ada", password=PASSWORD)


@pytest.fixture
def phone(ada: User, monkeypatch: pytest.MonkeyPatch) -> Phone:
    return Phone(ada, monkeypatch)


def recovery_codes(ada: User, phone: Phone) -> list[str]:
    """The recovery codes that were shown when the second factor was switched on."""
    second_factor.begin(actor=ada)
    return second_factor.confirm(actor=ada, code=phone.code())


def after_password(client: Client | None = None) -> Client:
    client = client or Client()
    answer = client.post("/sign-in", {"username": "ada", "password": PASSWORD, "next": "/tokens"})
    assert answer["Location"] == "/sign-in/code"
    return client


def forget_the_pause(ada: User) -> None:
    """Let the growing pause after wrong codes pass."""
    TOTPDevice.objects.filter(user=ada).update(throttling_failure_timestamp=timezone.now() - timedelta(hours=1))


# --- Setting up ------------------------------------------------------------------------------------------------------
def test_from_the_page_to_the_recovery_codes(ada: User, phone: Phone) -> None:
    client = Client()
    client.force_login(ada)
    page = client.post("/account/second-factor").content.decode()
    assert "data:image/svg+xml" in page
    assert second_factor.key_of(TOTPDevice.objects.get()) in page
    done = client.post("/account/second-factor/on", {"code": phone.code()}).content.decode()
    assert len(re.findall(r"<code>[a-z2-7]{4}(?:-[a-z2-7]{4}){3}</code>", done)) == 10


def test_a_look_at_the_page_makes_no_key(ada: User) -> None:
    client = Client()
    client.force_login(ada)
    assert client.get("/account/second-factor").status_code == 200
    assert not TOTPDevice.objects.exists()


def test_each_visit_makes_another_key(ada: User) -> None:
    client = Client()
    client.force_login(ada)
    keys = []
    for _ in range(2):
        page = client.post("/account/second-factor").content.decode()
        keys.append(second_factor.key_of(TOTPDevice.objects.get()))
        assert keys[-1] in page
    assert keys[0] != keys[1]


def test_an_impersonating_admin_cannot_open_the_page(personas: Personas) -> None:
    admin = personas.client("admin")
    admin.post("/admin/users/viewer/look", {"reason": "A question about a job."})
    statuses = [admin.get("/account/second-factor").status_code, admin.post("/account/second-factor").status_code]
    assert statuses == [403, 403]
    assert not TOTPDevice.objects.exists()


def test_after_a_wrong_code_the_same_key_is_tried_again(ada: User) -> None:
    client = Client()
    client.force_login(ada)
    client.post("/account/second-factor")
    key = second_factor.key_of(TOTPDevice.objects.get())
    again = client.post("/account/second-factor/on", {"code": "000000"})
    assert (again.status_code, key in again.content.decode()) == (422, True)


def test_a_wrong_code_switches_nothing_on(ada: User) -> None:
    client = Client()
    client.force_login(ada)
    client.post("/account/second-factor")
    page = client.post("/account/second-factor/on", {"code": "000000"}, follow=True)
    assert mentions(page.content.decode(), messages.TWO_FACTOR_CODE_NOT_CURRENT)
    assert second_factor.device_of(ada) is None


def test_an_unfinished_setup_requires_no_code(ada: User) -> None:
    second_factor.begin(actor=ada)
    assert Client().post("/sign-in", {"username": "ada", "password": PASSWORD})["Location"] == "/"


def test_recovery_codes_are_kept_as_digests(ada: User, phone: Phone) -> None:
    codes = recovery_codes(ada, phone)
    kept = str(list(RecoveryCode.objects.values()))
    assert not any(code in kept or code.replace("-", "") in kept for code in codes)


# --- Signing in ------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("The password alone does not sign in to an account with a second factor.")
def test_the_password_alone_opens_nothing(ada: User, phone: Phone) -> None:
    recovery_codes(ada, phone)
    client = after_password()
    assert client.get("/tokens").status_code == 302
    assert client.get("/api/v1/me").status_code == 401


def test_the_code_opens_the_page_that_was_wanted(ada: User, phone: Phone) -> None:
    recovery_codes(ada, phone)
    client = after_password()
    key = client.cookies["regatta-session"].value
    assert client.post("/sign-in/code", {"code": phone.code()})["Location"] == "/tokens"
    assert client.get("/tokens").status_code == 200
    assert client.cookies["regatta-session"].value != key


def test_a_code_is_good_once(ada: User, phone: Phone) -> None:
    recovery_codes(ada, phone)
    code = phone.code()
    assert after_password().post("/sign-in/code", {"code": code}).status_code == 302
    assert after_password().post("/sign-in/code", {"code": code}).status_code == 401


def test_a_recovery_code_is_good_once_however_it_is_written(ada: User, phone: Phone) -> None:
    code = recovery_codes(ada, phone)[0]
    assert after_password().post("/sign-in/code", {"code": f" {code.upper()} "}).status_code == 302
    assert after_password().post("/sign-in/code", {"code": code}).status_code == 401
    assert second_factor.codes_left(ada) == 9


def test_guessing_codes_is_slowed_down_even_for_a_right_one_at_last(ada: User, phone: Phone) -> None:
    codes = recovery_codes(ada, phone)
    client = after_password()
    assert client.post("/sign-in/code", {"code": "000000"}).status_code == 401
    assert client.post("/sign-in/code", {"code": codes[0]}).status_code == 429
    forget_the_pause(ada)
    assert client.post("/sign-in/code", {"code": codes[0]}).status_code == 302


def test_a_password_that_was_right_waits_ten_minutes(ada: User, phone: Phone, monkeypatch) -> None:
    recovery_codes(ada, phone)
    client = after_password()
    monkeypatch.setattr("rbac.sign_in.sign_in.wall_clock", lambda: timezone.now() + timedelta(minutes=11))
    assert client.post("/sign-in/code", {"code": phone.code()})["Location"] == "/sign-in"


def test_without_a_password_no_code_is_asked_for() -> None:
    assert Client().get("/sign-in/code")["Location"] == "/sign-in"


def test_a_program_sends_the_code_with_the_password(ada: User, phone: Phone) -> None:
    recovery_codes(ada, phone)
    body = {"username": "ada", "password": PASSWORD}
    refused = Client().post("/api/v1/auth/token", body, JSON)
    assert (refused.status_code, mentions(refused.json()["detail"], messages.TWO_FACTOR_CODE_MISSING)) == (401, True)
    assert Client().post("/api/v1/auth/token", {**body, "code": phone.code()}, JSON).status_code == 201


# --- Removal ---------------------------------------------------------------------------------------------------------
def test_switching_off_takes_a_code(ada: User, phone: Phone) -> None:
    recovery_codes(ada, phone)
    client = Client()
    client.force_login(ada)
    client.post("/account/second-factor/off", {"code": "000000"})
    assert second_factor.device_of(ada) is not None
    forget_the_pause(ada)
    client.post("/account/second-factor/off", {"code": phone.code()})
    assert second_factor.device_of(ada) is None
    assert second_factor.codes_left(ada) == 0


def test_new_recovery_codes_replace_the_old(ada: User, phone: Phone) -> None:
    old = recovery_codes(ada, phone)
    client = Client()
    client.force_login(ada)
    page = client.post("/account/second-factor/codes", {"code": phone.code()}).content.decode()
    assert not any(code in page for code in old)
    assert second_factor.codes_left(ada) == 10


# --- Admins ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def asked_of_admins(settings) -> None:
    settings.ADMIN_SECOND_FACTOR = True


@pytest.mark.usefixtures("asked_of_admins")
def test_an_admin_without_one_is_led_to_it_in_at_most_three_steps(personas: Personas) -> None:
    page = personas.client("admin").get("/", follow=True)
    assert page.redirect_chain[-1][0] == "/account/second-factor"
    assert len(page.redirect_chain) <= 3
    assert page.status_code == 200


@pytest.mark.usefixtures("asked_of_admins")
def test_an_admin_without_one_changes_nothing_through_the_api(personas: Personas) -> None:
    answer = personas.client("admin").post("/api/v1/namespaces", {"name": "x"}, JSON)
    assert (answer.status_code, mentions(answer.json()["detail"], messages.TWO_FACTOR_REQUIRED)) == (403, True)


@pytest.mark.usefixtures("asked_of_admins")
def test_an_admin_without_one_gets_no_token(personas: Personas) -> None:
    personas.admin.set_password(PASSWORD)
    personas.admin.save()
    body = {"username": "root", "password": PASSWORD}
    assert Client().post("/api/v1/auth/token", body, JSON).status_code == 403


@pytest.mark.usefixtures("asked_of_admins")
def test_everybody_else_is_left_in_peace(personas: Personas) -> None:
    assert personas.client("owner").get("/tokens").status_code == 200


@pytest.mark.usefixtures("asked_of_admins")
def test_an_admin_does_not_get_rid_of_it(personas: Personas, monkeypatch: pytest.MonkeyPatch) -> None:
    phone = Phone(personas.admin, monkeypatch)
    recovery_codes(personas.admin, phone)
    client = personas.client("admin")
    page = client.post("/account/second-factor/off", {"code": phone.code()}, follow=True)
    assert mentions(page.content.decode(), messages.TWO_FACTOR_MANDATORY)
    assert second_factor.device_of(personas.admin) is not None


@pytest.mark.parametrize("code", ["abcd-2345", "abcdefgh-ijkl2345"])
def test_codes_of_every_length_are_taken(ada: User, phone: Phone, code: str) -> None:
    """Codes of 8 characters are of an earlier version."""
    recovery_codes(ada, phone)
    RecoveryCode.objects.create(user=ada, digest=second_factor._digest(ada, code.replace("-", "")))
    second_factor.verify(ada, code)


@pytest.mark.django_db(transaction=True)
def test_of_two_concurrent_setups_one_key_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the key of the other transaction the app would always show wrong codes."""
    ada = make_user("ada", password=PASSWORD)
    both, look = threading.Barrier(2), second_factor.device_of

    def looked(user: User) -> TOTPDevice | None:
        found = look(user)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(1)  # the second is here as well, unless it waits for the first
        return found

    def begin() -> None:
        try:
            second_factor.begin(actor=ada)
        finally:
            connection.close()

    monkeypatch.setattr(second_factor, "device_of", looked)
    threads = [threading.Thread(target=begin) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert TOTPDevice.objects.filter(user=ada).count() == 1
