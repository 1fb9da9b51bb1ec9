"""Record of e-mails whose sending failed."""

from __future__ import annotations

import smtplib
from datetime import timedelta
from typing import Any

import pytest

from portal.common.clock import now
from rbac.emails import failed_emails, mail, outbox
from rbac.models import FailedEmail, OutgoingEmail, User
from tests.factories import make_user

pytestmark = pytest.mark.django_db
ADDRESS = "ada@example.org"


@pytest.fixture
def ada() -> User:
    user = make_user("ada")
    user.email = ADDRESS
    user.save()
    return user


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """The errors of the mail server for the next e-mails; afterwards it accepts all."""
    left: list[Exception] = []
    send_mail = mail.send_mail

    def send(*args: Any) -> int:
        if left:
            raise left.pop(0)
        return send_mail(*args)

    monkeypatch.setattr("rbac.emails.mail.send_mail", send)
    return left


@pytest.fixture
def refused(ada: User, errors: list[Exception]) -> FailedEmail:
    """The record of an e-mail that the server has refused once."""
    errors.append(smtplib.SMTPDataError(451, f"{ADDRESS}: try later".encode()))
    mail.enqueue("http://portal", ADDRESS, "reset")
    assert outbox.send_due(now()) == 0
    return FailedEmail.objects.get()


@pytest.mark.invariant("The record of a failed e-mail contains no address and no text of an error.")
def test_a_refusal_is_recorded_without_the_address(refused: FailedEmail) -> None:
    assert (refused.template, refused.domain, refused.error) == ("reset", "example.org", "SMTPDataError 451")
    assert ADDRESS not in str(FailedEmail.objects.values().get())


def test_further_failures_of_an_email_are_in_the_same_row(refused: FailedEmail, errors: list[Exception]) -> None:
    errors.append(OSError("away"))
    outbox.send_due(now() + timedelta(hours=1))
    found = FailedEmail.objects.get()
    assert (found.tries, found.error, found.first) == (2, "OSError", refused.first)


def test_an_email_that_is_sent_later_is_recorded_as_sent(refused: FailedEmail) -> None:
    assert outbox.send_due(now() + timedelta(hours=1)) == 1
    found = FailedEmail.objects.get()
    assert found.sent is not None
    assert (found.email_id, found.next_try) == (None, None)


def test_an_email_that_is_given_up_is_recorded_as_such(
    refused: FailedEmail, errors: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "TRIES_LIMIT", 2)
    errors.append(OSError("away"))
    outbox.send_due(now() + timedelta(hours=1))
    found = FailedEmail.objects.get()
    assert (found.sent, found.email_id, found.next_try) == (None, None, None)


def test_a_waiting_email_is_sent_again(refused: FailedEmail) -> None:
    assert failed_emails.send_again(refused.pk, now())
    assert outbox.send_due(now()) == 1


@pytest.mark.invariant("Sending a failed e-mail again never sends one that a process is sending now.")
def test_an_email_that_a_process_is_sending_is_not_sent_again(refused: FailedEmail) -> None:
    claimed = now() + outbox.CLAIM
    OutgoingEmail.objects.update(due=claimed)
    assert not failed_emails.send_again(refused.pk, now())
    assert OutgoingEmail.objects.get().due == claimed


def test_an_email_that_was_sent_or_given_up_is_not_sent_again(refused: FailedEmail) -> None:
    outbox.send_due(now() + timedelta(hours=1))
    assert not failed_emails.send_again(refused.pk, now())
    assert not failed_emails.send_again(refused.pk + 1, now())


def test_a_test_email_that_fails_is_recorded(errors: list[Exception]) -> None:
    errors.append(OSError("away"))
    assert mail.try_out(ADDRESS) == "away"
    assert FailedEmail.objects.get().template == "trial"


def test_old_rows_and_those_beyond_the_limit_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_emails, "MOST_ROWS", 2)
    for days in (31, 3, 2, 1):
        failed_emails.record_trial(f"x@day{days}", OSError(), now() - timedelta(days=days))
    failed_emails.prune(now())
    assert [row.domain for row in FailedEmail.objects.order_by("pk")] == ["day2", "day1"]
