from __future__ import annotations

import pytest
from django.test import RequestFactory

from portal.common.errors import Conflict, Forbidden, NotFound, NotSignedIn, TooManyRequests, ValidationFailed
from rbac import services, tokens
from rbac.audit import context as audit_context
from rbac.audit.context import AuditContext
from rbac.models import AuditEntry, Membership, Role, User
from rbac.sign_in import sign_in
from tests.factories import make_namespace, make_user
from tests.personas import Personas

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough password"


def request_from(address: str):
    return RequestFactory().post("/", REMOTE_ADDR=address)


def test_the_first_sign_in_makes_a_personal_namespace_owned_by_the_account() -> None:
    user = make_user("carol", password=PASSWORD)
    sign_in.check_password(request_from("10.0.0.1"), "carol", PASSWORD)
    sign_in.check_password(request_from("10.0.0.1"), "carol", PASSWORD)
    assert [(m.namespace.name, m.role) for m in Membership.objects.filter(user=user)] == [("carol", Role.OWNER)]


def test_a_personal_namespace_gives_way_to_a_team_of_that_name() -> None:
    make_namespace("carol")
    namespace = services.ensure_personal_namespace(make_user("carol"))
    assert namespace.name.startswith("carol---")


def test_the_message_is_the_same_for_a_wrong_name_and_a_wrong_password() -> None:
    make_user("carol", password=PASSWORD)
    messages = set()
    for username in ("carol", "nobody-of-that-name"):
        with pytest.raises(NotSignedIn) as refused:
            sign_in.check_password(request_from("10.0.0.1"), username, "wrong")
        messages.add(refused.value.detail)
    assert len(messages) == 1


def fail_often(username: str, address: str) -> None:
    for _ in range(100):
        try:
            sign_in.check_password(request_from(address), username, "wrong")
        except NotSignedIn:
            continue
        except TooManyRequests:
            return
    raise AssertionError("never throttled")


@pytest.fixture
def few_attempts(settings) -> None:
    settings.AXES_FAILURE_LIMIT = 3


def test_guessing_is_throttled_even_with_the_right_password_at_last(few_attempts: None) -> None:
    make_user("carol", password=PASSWORD)
    fail_often("carol", "10.0.0.1")
    with pytest.raises(TooManyRequests):
        sign_in.check_password(request_from("10.0.0.1"), "carol", PASSWORD)


def test_guessing_one_name_locks_out_nobody_else_behind_the_same_proxy(few_attempts: None) -> None:
    make_user("carol", password=PASSWORD)
    fail_often("mallory", "10.0.0.1")
    assert sign_in.check_password(request_from("10.0.0.1"), "carol", PASSWORD).username == "carol"


def test_guessing_does_not_lock_the_account_from_elsewhere(few_attempts: None) -> None:
    make_user("carol", password=PASSWORD)
    fail_often("carol", "10.0.0.1")
    assert sign_in.check_password(request_from("10.0.0.2"), "carol", PASSWORD).username == "carol"


def test_only_admins_open_accounts(personas: Personas) -> None:
    with pytest.raises(Forbidden):
        services.create_user(actor=personas.owner, username="eve", password=PASSWORD)


def test_capital_letters_make_no_other_account(personas: Personas) -> None:
    with pytest.raises(ValidationFailed) as refused:
        services.create_user(username="OWNER", password="a long enough passphrase", actor=personas.admin)
    assert set(refused.value.errors) == {"username"}


def test_a_weak_password_is_refused_beside_its_field(personas: Personas) -> None:
    with pytest.raises(ValidationFailed) as refused:
        services.create_user(actor=personas.admin, username="eve", password="short")
    assert list(refused.value.errors) == ["password"]
    assert not User.objects.filter(username="eve").exists()


def test_a_token_is_stored_as_a_digest(personas: Personas) -> None:
    token, secret = tokens.create_token(actor=personas.owner, name="laptop")
    assert secret.startswith("rgt_")
    assert secret not in str(token.__dict__)


def test_nobody_revokes_the_token_of_another(personas: Personas) -> None:
    token, _ = tokens.create_token(actor=personas.owner, name="laptop")
    with pytest.raises(NotFound):
        tokens.revoke_token(actor=personas.developer, token_id=str(token.pk))


def test_the_last_owner_stays(personas: Personas) -> None:
    with pytest.raises(Conflict):
        services.remove_member(actor=personas.owner, namespace_name="team", username="owner")
    with pytest.raises(Conflict):
        services.set_member(actor=personas.owner, namespace_name="team", username="owner", role=Role.VIEWER)


def test_an_owner_may_go_when_there_is_another(personas: Personas) -> None:
    services.set_member(actor=personas.owner, namespace_name="team", username="developer", role=Role.OWNER)
    services.remove_member(actor=personas.owner, namespace_name="team", username="owner")
    assert not Membership.objects.filter(namespace=personas.namespace, user=personas.owner).exists()


def test_the_owner_of_a_personal_namespace_stays_beside_other_owners(personas: Personas) -> None:
    personal = services.ensure_personal_namespace(personas.developer)
    services.set_member(actor=personas.developer, namespace_name=personal.name, username="owner", role=Role.OWNER)
    with pytest.raises(Conflict):
        services.remove_member(actor=personas.owner, namespace_name=personal.name, username="developer")


def test_a_member_may_leave(personas: Personas) -> None:
    services.remove_member(actor=personas.viewer, namespace_name="team", username="viewer")
    assert not Membership.objects.filter(namespace=personas.namespace, user=personas.viewer).exists()


def test_deeds_leave_a_row_in_the_trail(personas: Personas) -> None:
    with audit_context.use(AuditContext(address="10.0.0.9")):
        services.set_member(actor=personas.owner, namespace_name="team", username="stranger", role=Role.VIEWER)
    row = AuditEntry.objects.get(action="member.add")
    assert (row.actor, row.target, row.namespace, row.address) == (
        personas.owner,
        "stranger",
        "team",
        "10.0.0.9",
    )


def test_a_deed_that_fails_leaves_none(personas: Personas) -> None:
    with pytest.raises(Conflict):
        services.remove_member(actor=personas.owner, namespace_name="team", username="owner")
    assert not AuditEntry.objects.filter(action="member.remove").exists()
