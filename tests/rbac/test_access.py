"""The rules of ``rbac.access``, one by one: a test fails for each missing rule, even when another rule also refuses."""

from __future__ import annotations

from datetime import timedelta

import pytest

from portal.common.clock import now
from portal.common.errors import Forbidden, NotFound
from rbac import access, messages
from rbac.models import ApiToken, Membership, Namespace, User
from rbac.scopes import Scope
from rbac.selectors import token_behind, tokens_of
from tests.factories import make_token
from tests.messages import pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db


def restricted(actor: User, scope: Scope = Scope.JOB_READ) -> list[str]:
    """Return the names of namespaces that ``restrict`` returns, by memberships and by the namespaces themselves."""
    by_pk = access.restrict(Namespace.objects.filter(name="team"), actor, scope, path="pk")
    by_path = access.restrict(Membership.objects.filter(namespace__name="team"), actor, scope)
    assert {row.namespace_id for row in by_path} == {row.pk for row in by_pk}
    return [row.name for row in by_pk]


def bound(actor: User, *scopes: Scope) -> User:
    """Return the account of a token that is bound to scopes."""
    actor.granted = frozenset(scopes)
    return actor


def close(personas: Personas) -> None:
    """The state between the closing of a namespace and the end of its memberships."""
    Namespace.objects.filter(pk=personas.namespace.pk).update(closed=now())


def test_a_role_that_holds_the_scope_is_needed(personas: Personas) -> None:
    assert restricted(personas.viewer) == ["team"]
    assert restricted(personas.viewer, Scope.JOB_WRITE) == []
    assert restricted(personas.developer, Scope.JOB_WRITE) == ["team"]
    assert restricted(personas.stranger) == []


@pytest.mark.parametrize("who", ["owner", "admin"])
def test_a_closed_namespace_is_invisible_although_a_membership_is_left(personas: Personas, who: str) -> None:
    actor: User = getattr(personas, who)
    assert restricted(actor) == ["team"]
    close(personas)
    assert restricted(actor) == []
    with pytest.raises(NotFound):
        access.namespace_for(actor, "team", Scope.NAMESPACE_READ)


def test_a_closed_namespace_cannot_be_held_open(personas: Personas) -> None:
    close(personas)
    with pytest.raises(NotFound):
        access.hold_open(personas.namespace)


@pytest.mark.parametrize("who", ["owner", "admin"])
def test_a_token_restricts_its_account(personas: Personas, who: str) -> None:
    actor = bound(getattr(personas, who), Scope.NAMESPACE_READ, Scope.JOB_READ)
    assert restricted(actor) == ["team"]
    assert restricted(actor, Scope.DATASET_READ) == []
    assert access.namespace_for(actor, "team", Scope.JOB_READ) == personas.namespace
    with pytest.raises(Forbidden, match=pattern(messages.TOKEN_SCOPE_INSUFFICIENT)):
        access.namespace_for(actor, "team", Scope.JOB_WRITE)


def test_a_token_without_the_scope_to_see_namespaces_sees_none(personas: Personas) -> None:
    with pytest.raises(NotFound):
        access.namespace_for(bound(personas.owner, Scope.JOB_READ), "team", Scope.JOB_READ)


def test_an_account_that_was_shut_may_nothing(personas: Personas) -> None:
    personas.owner.is_active = False
    assert restricted(personas.owner) == []
    with pytest.raises(NotFound):
        access.namespace_for(personas.owner, "team", Scope.NAMESPACE_READ)


def test_a_role_that_is_too_small_differs_from_no_membership(personas: Personas) -> None:
    with pytest.raises(Forbidden, match=pattern(messages.ROLE_INSUFFICIENT)):
        access.namespace_for(personas.viewer, "team", Scope.JOB_WRITE)
    with pytest.raises(NotFound):
        access.namespace_for(personas.stranger, "team", Scope.JOB_READ)


def test_actions_of_admins_need_an_admin_and_a_token_with_the_scope(personas: Personas) -> None:
    access.require_admin(personas.admin)
    with pytest.raises(Forbidden):
        access.require_admin(personas.owner)
    with pytest.raises(Forbidden):
        access.require_admin(bound(personas.admin, *(scope for scope in Scope if scope != Scope.PLATFORM_ADMIN)))


def test_changes_of_ones_account_need_a_token_that_lets_them(personas: Personas) -> None:
    assert access.account_of(personas.owner) == personas.owner
    with pytest.raises(Forbidden):
        access.account_of(bound(personas.owner, Scope.JOB_READ))


# --- Tokens ----------------------------------------------------------------------------------------------------------
def test_a_token_is_good_until_it_is_revoked(personas: Personas) -> None:
    secret = make_token(personas.viewer)
    assert token_behind(secret, now()) is not None
    ApiToken.objects.update(revoked=now())
    assert token_behind(secret, now()) is None


def test_a_token_is_good_until_it_expires(personas: Personas) -> None:
    secret = make_token(personas.viewer)
    ApiToken.objects.update(expires=now() + timedelta(hours=1))
    assert token_behind(secret, now()) is not None
    assert token_behind(secret, now() + timedelta(hours=2)) is None


def test_a_token_of_an_account_that_was_shut_is_good_for_nothing(personas: Personas) -> None:
    secret = make_token(personas.viewer)
    User.objects.filter(pk=personas.viewer.pk).update(is_active=False)
    assert token_behind(secret, now()) is None


def test_a_token_grants_its_account_no_more_than_its_scopes(personas: Personas) -> None:
    secret = make_token(personas.viewer)
    ApiToken.objects.update(scopes=["job:read"])
    token = token_behind(secret, now())
    assert token is not None
    assert token.user.granted == {"job:read"}


def test_everybody_lists_tokens_of_their_own(personas: Personas) -> None:
    make_token(personas.owner)
    make_token(personas.viewer)
    assert [token.user for token in tokens_of(personas.viewer)] == [personas.viewer]
