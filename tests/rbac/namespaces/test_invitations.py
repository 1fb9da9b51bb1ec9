"""Invitations: by name, by address, expired ones, to the own account."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core import mail
from django.test import Client

from portal.common.clock import now
from portal.common.errors import Conflict, Forbidden, NotFound, RegattaError, ValidationFailed
from rbac import messages, services
from rbac.emails import outbox
from rbac.models import Invitation, Membership, Role
from rbac.namespaces import invitations
from tests.factories import make_user
from tests.messages import mentions, pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db
ADDRESS = "new@example.org"


def invite(personas: Personas, identity: str = "stranger", role: Role = Role.DEVELOPER) -> invitations.Invited:
    return invitations.invite(actor=personas.owner, namespace_name="team", invitee=identity, role=role)


def role_of(username: str) -> str | None:
    rows = Membership.objects.filter(namespace__name="team", user__username=username)
    return rows.values_list("role", flat=True).first()


def let_expire(invitation: Invitation) -> None:
    Invitation.objects.filter(pk=invitation.pk).update(expires=now() - timedelta(seconds=1))


def test_an_invited_account_is_no_member_before_it_accepts(personas: Personas) -> None:
    made = invite(personas)
    assert role_of("stranger") is None
    invitations.accept(actor=personas.stranger, invitation=made.invitation)
    assert role_of("stranger") == "developer"


def test_the_link_of_an_email_can_be_accepted_once(personas: Personas) -> None:
    made = invite(personas, ADDRESS, Role.VIEWER)
    invitations.accept(actor=personas.stranger, invitation=invitations.behind_link(made.secret))
    assert role_of("stranger") == "viewer"
    with pytest.raises(Conflict, match=pattern(messages.INVITATION_ANSWERED)):
        invitations.behind_link(made.secret)


def test_the_secret_of_the_link_is_not_stored(personas: Personas) -> None:
    made = invite(personas, ADDRESS)
    assert made.secret not in str(Invitation.objects.values().get())


@pytest.mark.parametrize(
    ("identity", "error", "words"),
    [
        ("owner", Conflict, pattern(messages.SELF_INVITATION)),
        ("OWNER@example.org", Conflict, pattern(messages.SELF_INVITATION)),
        ("viewer", Conflict, pattern(messages.ALREADY_MEMBER)),
        ("ghost", ValidationFailed, pattern(messages.INVITEE_UNKNOWN)),
        ("disabled", ValidationFailed, pattern(messages.INVITEE_UNKNOWN)),
        ("", ValidationFailed, pattern(messages.INVITEE_UNKNOWN)),
        ("a`id`@", ValidationFailed, pattern(messages.INVITEE_UNKNOWN)),
    ],
)
def test_an_impossible_invitee_is_an_error_and_nothing_is_stored(
    personas: Personas, identity: str, error: type[RegattaError], words: str
) -> None:
    personas.owner.email = "owner@example.org"
    personas.owner.save()
    with pytest.raises(error, match=words):
        invite(personas, identity)
    assert not Invitation.objects.exists()


@pytest.mark.parametrize("identity", ["stranger", ADDRESS, ADDRESS.upper()])
def test_nobody_has_two_open_invitations(personas: Personas, identity: str) -> None:
    invite(personas, identity.lower())
    with pytest.raises(Conflict, match=pattern(messages.INVITATION_ALREADY_OPEN)):
        invite(personas, identity)


def test_an_expired_invitation_is_an_error_and_can_be_replaced(personas: Personas) -> None:
    made = invite(personas)
    let_expire(made.invitation)
    with pytest.raises(Conflict, match=pattern(messages.INVITATION_EXPIRED, name="owner")):
        invitations.accept(actor=personas.stranger, invitation=made.invitation)
    assert role_of("stranger") is None
    invitations.accept(actor=personas.stranger, invitation=invite(personas).invitation)
    assert role_of("stranger") == "developer"


def test_an_expired_link_is_a_page_with_the_reason(personas: Personas) -> None:
    made = invite(personas, ADDRESS)
    let_expire(made.invitation)
    answer = personas.client("stranger").get(f"/invitations/link/{made.secret}")
    assert mentions(answer.content.decode(), messages.INVITATION_EXPIRED)


def test_a_withdrawn_invitation_is_gone(personas: Personas) -> None:
    made = invite(personas)
    invitations.withdraw(actor=personas.owner, namespace_name="team", invitation_id=str(made.invitation.pk))
    with pytest.raises(NotFound):
        invitations.own(personas.stranger, str(made.invitation.pk))


def test_declining_keeps_one_out(personas: Personas) -> None:
    made = invite(personas)
    invitations.decline(actor=personas.stranger, invitation=made.invitation)
    with pytest.raises(Conflict):
        invitations.accept(actor=personas.stranger, invitation=made.invitation)


def test_a_member_who_accepts_an_invitation_keeps_the_role(personas: Personas) -> None:
    made = invite(personas, role=Role.VIEWER)
    services.set_member(actor=personas.owner, namespace_name="team", username="stranger", role=Role.OWNER)
    invitations.accept(actor=personas.stranger, invitation=made.invitation)
    assert role_of("stranger") == "owner"


def test_nobody_answers_the_invitation_of_another(personas: Personas) -> None:
    made = invite(personas)
    with pytest.raises(NotFound):
        invitations.own(personas.viewer, str(made.invitation.pk))


@pytest.mark.parametrize("name", ["developer", "viewer"])
def test_only_owners_invite(personas: Personas, name: str) -> None:
    with pytest.raises(Forbidden):
        invitations.invite(actor=personas.user(name), namespace_name="team", invitee="stranger", role=Role.VIEWER)


# --- Pages and e-mails -----------------------------------------------------------------------------------------------
def test_the_email_holds_the_link_of_the_page(personas: Personas) -> None:
    page = personas.client("owner").post("/n/team/invitations", {"who": ADDRESS, "role": "viewer"})
    assert outbox.send_due(now()) == 1
    (sent_email,) = mail.outbox
    assert sent_email.to == [ADDRESS]
    link = next(line for line in sent_email.body.splitlines() if line.startswith("http"))
    assert link in page.content.decode()
    joined = personas.client("stranger").post(link.removeprefix("http://testserver"))
    assert joined["Location"] == "/n/team/jobs"
    assert role_of("stranger") == "viewer"


def test_a_mail_server_that_is_down_delays_only_the_email(
    personas: Personas, django_capture_on_commit_callbacks, settings
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    with django_capture_on_commit_callbacks(execute=True):
        page = personas.client("owner").post("/n/team/invitations", {"who": ADDRESS, "role": "viewer"})
    assert "/invitations/link/" in page.content.decode()


def test_a_refusal_is_a_message_on_the_page(personas: Personas) -> None:
    client = personas.client("owner")
    page = client.post("/n/team/invitations", {"who": "owner", "role": "viewer"}, follow=True)
    assert messages.SELF_INVITATION() in page.content.decode()


def test_the_program_s_way_through_an_invitation(personas: Personas) -> None:
    def api(name: str) -> Client:
        return personas.client(name)

    made = api("owner").post(
        "/api/v1/namespaces/team/invitations", {"who": "stranger", "role": "viewer"}, "application/json"
    )
    assert (made.status_code, made.json()["link"]) == (201, "")
    (mine,) = api("stranger").get("/api/v1/invitations").json()["results"]
    answer = api("stranger").post(f"/api/v1/invitations/{mine['id']}/accept")
    assert answer.json() == {"name": "team", "role": "viewer"}


def test_an_address_with_characters_of_a_shell_is_an_address_and_nothing_more(personas: Personas) -> None:
    personas.client("owner").post("/n/team/invitations", {"who": "a`id`|x@example.org", "role": "viewer"})
    outbox.send_due(now())
    assert mail.outbox[0].to == ["a`id`|x@example.org"]
    assert make_user("x").is_active


def test_the_link_of_a_withdrawn_invitation_is_no_link(personas: Personas) -> None:
    made = invite(personas, ADDRESS)
    invitations.withdraw(actor=personas.owner, namespace_name="team", invitation_id=str(made.invitation.pk))
    with pytest.raises(NotFound):
        invitations.behind_link(made.secret)


def test_owners_withdraw_invitations_of_their_namespace_alone(personas: Personas) -> None:
    made = invite(personas, ADDRESS)
    with pytest.raises(NotFound):
        invitations.withdraw(actor=personas.stranger, namespace_name="elsewhere", invitation_id=str(made.invitation.pk))
    assert Invitation.objects.get(pk=made.invitation.pk).ended is None
