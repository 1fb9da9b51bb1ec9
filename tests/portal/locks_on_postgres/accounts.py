"""Locks of accounts and namespaces."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django_otp.plugins.otp_totp.models import TOTPDevice

from portal.common.errors import Conflict, NotFound
from rbac import access, account_admin, services
from rbac.models import Role
from rbac.sign_in import second_factor
from tests.factories import make_member, make_namespace, make_user
from tests.portal.locks_on_postgres.conftest import Action, Meet

pytestmark = pytest.mark.django_db(transaction=True)


def test_of_two_owners_leaving_at_once_one_stays(meet: Meet) -> None:
    one, two = make_user("one"), make_user("two")
    namespace = make_namespace("team", owner=one)
    make_member(namespace, two, Role.OWNER)
    leave = [
        lambda account=account: services.remove_member(actor=account, namespace_name="team", username=account.username)
        for account in (one, two)
    ]
    _, refused = meet("rbac.services.wake_sockets", *leave)
    assert isinstance(refused, Conflict)
    assert [member.user for member in namespace.memberships.all()] == [two]


def test_of_two_admins_demoting_each_other_one_stays(meet: Meet) -> None:
    one, two = make_user("one", admin=True), make_user("two", admin=True)

    def demote(actor: Any, other: Any) -> Action:
        return lambda: account_admin.set_admin(actor=actor, username=other.username, admin=False, reason="a test")

    _, refused = meet("rbac.account_admin.wake_sockets", demote(one, two), demote(two, one))
    assert isinstance(refused, Conflict)


def test_nothing_is_held_open_while_it_is_being_closed(meet: Meet) -> None:
    owner = make_user("one")
    namespace = make_namespace("team", owner=owner)

    def hold() -> None:
        with transaction.atomic():
            access.hold_open(namespace)

    def close() -> None:
        services.close_namespace(actor=owner, namespace_name="team", confirmation="team")

    closed, refused = meet("rbac.services.wake_sockets", close, hold)
    assert closed is None
    assert isinstance(refused, NotFound)


def test_of_two_concurrent_authenticator_setups_the_later_one_counts(
    monkeypatch: pytest.MonkeyPatch, meet: Meet
) -> None:
    ada = make_user("ada")

    def begin() -> int:
        with transaction.atomic():
            device = second_factor.begin(actor=ada)
            second_factor.wall_clock()
        return int(device.pk)

    _, later = meet("rbac.sign_in.second_factor.wall_clock", begin, begin)
    assert [device.pk for device in TOTPDevice.objects.all()] == [later]
