"""Password guessing: its records and its limits."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from axes.models import AccessAttempt
from django.test import Client

from portal.common.clock import now
from portal.common.errors import TooManyRequests
from rbac import messages, throttle
from rbac.models import AuditEntry
from rbac.sign_in import password_guessing
from rbac.sign_in.password_hashing import BoundedArgon2PasswordHasher, slot
from tests.factories import make_user
from tests.messages import mentions, pattern

pytestmark = pytest.mark.django_db
PASSWORD = "a-long-enough-one"


def guess(name: str = "ada", password: str = "wrong", address: str = "192.0.2.1") -> int:
    form = {"username": name, "password": password}
    return int(Client(REMOTE_ADDR=address).post("/sign-in", form).status_code)


@pytest.mark.parametrize(("name", "password"), [("x" * 151, "y"), ("x" * 60_000, "y"), ("ada", "y" * 1025)])
def test_an_impossible_name_or_password_is_not_stored(name: str, password: str) -> None:
    assert guess(name, password) == 401
    assert not AccessAttempt.objects.exists()
    assert len(AuditEntry.objects.get(action="sign-in.fail").target) <= 200


def test_attempts_that_count_for_nothing_are_pruned() -> None:
    guess()
    assert password_guessing.prune_attempts(now()) == 0
    assert password_guessing.prune_attempts(now() + password_guessing.STORED + timedelta(minutes=1)) == 1
    assert not AccessAttempt.objects.exists()


def test_the_sweep_prunes_at_most_hourly_and_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[datetime] = []

    def fail(moment: datetime) -> int:
        calls.append(moment)
        raise RuntimeError("The database is away.")

    monkeypatch.setattr(password_guessing, "prune_attempts", fail)
    rounds, begin = password_guessing.SignInAttempts(), now()
    for minutes in (0, 30, 61):
        rounds.when_due(begin + timedelta(minutes=minutes))
    assert len(calls) == 2


def test_one_network_tries_few_passwords_for_any_names(settings) -> None:
    settings.SIGN_IN_NETWORK_RATE = (3, timedelta(minutes=1))
    assert [guess(f"name{number}") for number in range(5)] == [401, 401, 401, 429, 429]
    assert guess("name9", address="192.0.2.2") == 401
    assert AuditEntry.objects.filter(action="sign-in.throttle").count() == 1


def test_signing_in_rightly_is_not_counted(settings) -> None:
    settings.SIGN_IN_NETWORK_RATE = (2, timedelta(minutes=1))
    make_user("ada", password=PASSWORD)
    assert [guess(password=PASSWORD) for _ in range(4)] == [302] * 4


def test_all_ipv6_addresses_of_a_machine_are_one_network() -> None:
    assert throttle.network_of("2001:db8:0:1::2") == throttle.network_of("2001:db8:0:1:ffff::9") == "2001:db8:0:1::"
    assert throttle.network_of("2001:db8:0:2::2") != throttle.network_of("2001:db8:0:1::2")
    assert throttle.network_of("::ffff:192.0.2.7") == throttle.network_of("192.0.2.7") == "192.0.2.7"
    assert throttle.network_of(None) == ""


def test_the_lock_of_a_name_holds_for_the_whole_ipv6_network(settings) -> None:
    settings.AXES_FAILURE_LIMIT = 3
    assert [guess(address=f"2001:db8::{number}") for number in range(1, 5)] == [401, 401, 429, 429]


def test_refusals_while_locked_out_are_in_the_audit_log(settings) -> None:
    settings.AXES_FAILURE_LIMIT = 2
    for _ in range(4):
        guess()
    rows = AuditEntry.objects.filter(action="sign-in.fail").order_by("pk").values_list("detail", flat=True)
    assert list(rows) == [{}, *[{"locked_out": True}] * 3]


class Slots:
    """Counts the threads that hold a slot."""

    def __init__(self, *, free: bool = True) -> None:
        self.held, self._free = 0, free

    def acquire(self, timeout: float) -> bool:
        self.held += self._free
        return self._free

    def release(self) -> None:
        self.held -= 1


def test_a_password_is_hashed_within_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    slots, seen = Slots(), []
    monkeypatch.setattr("rbac.sign_in.password_hashing._slots", slots)
    for name in ("verify", "encode"):
        monkeypatch.setattr(
            f"django.contrib.auth.hashers.Argon2PasswordHasher.{name}", lambda *args: seen.append(slots.held)
        )
    BoundedArgon2PasswordHasher().verify("a", "b")
    BoundedArgon2PasswordHasher().encode("a", "b")
    assert (seen, slots.held) == ([1, 1], 0)


def test_a_request_that_waits_too_long_for_a_slot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbac.sign_in.password_hashing._slots", Slots(free=False))
    with pytest.raises(TooManyRequests, match=pattern(messages.TOO_MANY_PASSWORD_CHECKS)), slot():
        pass


def test_a_hash_takes_one_lane() -> None:
    hasher = BoundedArgon2PasswordHasher()
    made = hasher.encode("a few words", "somesaltsomesalt")
    assert "p=1" in made
    assert hasher.verify("a few words", made)


# --- The current password, on the page of the account ----------------------------------------------------------------
def change(client: Client, old: str, new: str = "another-long-enough-one") -> str:
    """Return the page that follows."""
    return client.post("/account/password", {"old": old, "new": new}, follow=True).content.decode()


def test_tries_at_the_present_password_end_the_right_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_guessing, "PRESENT_PASSWORD_TRIES", 3)
    user, client = make_user("ada", password=PASSWORD), Client()
    client.force_login(user)
    for _ in range(3):
        assert messages.OLD_PASSWORD_WRONG() in change(client, "wrong")
    assert mentions(change(client, PASSWORD), messages.TOO_MANY_REQUESTS_FOR_NOW)
    user.refresh_from_db()
    assert user.check_password(PASSWORD)


def test_right_tries_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_guessing, "PRESENT_PASSWORD_TRIES", 1)
    user = make_user("ada", password=PASSWORD)
    for _ in range(3):
        password_guessing.check_present_password(user, PASSWORD)
