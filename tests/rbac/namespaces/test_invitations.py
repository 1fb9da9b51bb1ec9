"""Invitations: by name, by address, past their time, for oneself."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core import mail
from django.test import Client

from portal.common.clock import now
from portal.common.errors import Conflict, Forbidden, NotFound, RegattaError, ValidationFailed
from rbac import outbox, services
from rbac.models import Invitation, Membership, Role
from rbac.namespaces import invitations
from tests.factories import make_user
from tests.personas import Personas

pytestmark = pytest.mark.django_db
ADDRESS = "new@example.org"


def invite(personas: Personas, who: str = "stranger", role: Role = Role.DEVELOPER) -> invitations.Invited:
    return invitations.invite(actor=personas.owner, namespace_name="team", who=who, role=role)


def role_of(username: str) -> str | None:
    rows = Membership.objects.filter(namespace__name="team", user__username=username)
    return rows.values_list("role", flat=True).first()


def let_expire(invitation: Invitation) -> None:
    Invitation.objects.filter(pk=invitation.pk).update(expires=now() - timedelta(seconds=1))


def test_who_is_invited_by_name_is_no_member_before_they_accept(personas: Personas) -> None:
    made = invite(personas)
    assert role_of("stranger") is None
    invitations.accept(actor=personas.stranger, invitation=made.invitation)
    assert role_of("stranger") == "developer"


def test_the_link_of_a_letter_lets_in_whoever_holds_it_once(personas: Personas) -> None:
    made = invite(personas, ADDRESS, Role.VIEWER)
    invitations.accept(actor=personas.stranger, invitation=invitations.behind_link(made.secret))
    assert role_of("stranger") == "viewer"
    with pytest.raises(Conflict, match="answered"):
        invitations.behind_link(made.secret)


def test_the_secret_of_the_link_is_kept_nowhere(personas: Personas) -> None:
    made = invite(personas, ADDRESS)
    assert made.secret not in str(Invitation.objects.values().get())


@pytest.mark.parametrize(
    ("who", "error", "words"),
    [
        ("owner", Conflict, "yourself"),
        ("OWNER@example.org", Conflict, "yourself"),
        ("viewer", Conflict, "member"),
        ("ghost", ValidationFailed, "neither|no account"),
        ("disabled", ValidationFailed, "no account"),
        ("", ValidationFailed, "no account"),
        ("a`id`@", ValidationFailed, "no account"),
    ],
)
def test_who_cannot_be_invited_is_told_so_and_nothing_is_left(
    personas: Personas, who: str, error: type[RegattaError], words: str
) -> None:
    personas.owner.email = "owner@example.org"
    personas.owner.save()
    with pytest.raises(error, match=words):
        invite(personas, who)
    assert not Invitation.objects.exists()


@pytest.mark.parametrize("who", ["stranger", ADDRESS, ADDRESS.upper()])
def test_nobody_has_two_open_invitations(personas: Personas, who: str) -> None:
    invite(personas, who.lower())
    with pytest.raises(Conflict, match="open invitation"):
        invite(personas, who)


def test_an_invitation_past_its_time_says_so_and_makes_room_for_another(personas: Personas) -> None:
    made = invite(personas)
    let_expire(made.invitation)
    with pytest.raises(Conflict, match="Ask owner for another"):
        invitations.accept(actor=personas.stranger, invitation=made.invitation)
    assert role_of("stranger") is None
    invitations.accept(actor=personas.stranger, invitation=invite(personas).invitation)
    assert role_of("stranger") == "developer"


def test_a_link_past_its_time_is_a_page_that_says_so(personas: Personas) -> None:
    made = invite(personas, ADDRESS)
    let_expire(made.invitation)
    answer = personas.client("stranger").get(f"/invitations/link/{made.secret}")
    assert "This invitation ended on" in answer.content.decode()


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


def test_who_became_a_member_meanwhile_keeps_the_role(personas: Personas) -> None:
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
        invitations.invite(actor=personas.user(name), namespace_name="team", who="stranger", role=Role.VIEWER)


# --- Pages and letters -----------------------------------------------------------------------------------------------
def test_the_letter_carries_the_link_of_the_page(personas: Personas) -> None:
    page = personas.client("owner").post("/n/team/invitations", {"who": ADDRESS, "role": "viewer"})
    assert outbox.send_due(now()) == 1
    (letter,) = mail.outbox
    assert letter.to == [ADDRESS]
    link = next(line for line in letter.body.splitlines() if line.startswith("http"))
    assert link in page.content.decode()
    joined = personas.client("stranger").post(link.removeprefix("http://testserver"))
    assert joined["Location"] == "/n/team/jobs"
    assert role_of("stranger") == "viewer"


def test_a_mail_server_that_is_down_costs_the_letter_alone(
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
    assert "You cannot invite yourself." in page.content.decode()


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
