"""Transfer and closing of namespaces, and the rights of former members."""

from __future__ import annotations

import pytest

from jobs.lifecycle.states import JobState
from jobs.messages import jobs as job_messages
from portal.common.errors import Conflict, Forbidden, NotFound
from rbac import messages, services, tokens
from rbac.access import hold_open, may, namespace_for
from rbac.models import ApiToken, AuditEntry, Membership, Namespace, Role
from rbac.namespaces import invitations
from rbac.scopes import Scope
from tests.factories import make_job, make_user
from tests.messages import pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db


def roles() -> dict[str, str]:
    rows = Membership.objects.filter(namespace__name="team", user__is_active=True)
    return dict(rows.values_list("user__username", "role"))


def close(personas: Personas) -> None:
    services.close_namespace(actor=personas.owner, namespace_name="team", confirmation="team")


# --- Transfer of ownership -------------------------------------------------------------------------------------------
def test_handing_over_swaps_the_roles(personas: Personas) -> None:
    services.hand_over(actor=personas.owner, namespace_name="team", username="viewer")
    assert roles() == {"owner": "developer", "developer": "developer", "viewer": "owner"}


@pytest.mark.parametrize(("heir", "error"), [("owner", Conflict), ("stranger", NotFound), ("ghost", NotFound)])
def test_it_goes_to_another_member_or_nowhere(personas: Personas, heir: str, error: type[Exception]) -> None:
    before = roles()
    with pytest.raises(error):
        services.hand_over(actor=personas.owner, namespace_name="team", username=heir)
    assert roles() == before


def test_an_admin_who_is_no_owner_cannot_transfer_ownership(personas: Personas) -> None:
    with pytest.raises(Conflict, match=pattern(messages.NOT_AN_OWNER)):
        services.hand_over(actor=personas.admin, namespace_name="team", username="viewer")


def test_a_personal_namespace_stays_with_its_account(personas: Personas) -> None:
    personal = services.ensure_personal_namespace(personas.developer)
    services.set_member(actor=personas.developer, namespace_name=personal.name, username="viewer", role=Role.VIEWER)
    with pytest.raises(Conflict, match=pattern(messages.PERSONAL_NAMESPACE)):
        services.hand_over(actor=personas.developer, namespace_name=personal.name, username="viewer")
    with pytest.raises(Conflict, match=pattern(messages.PERSONAL_NAMESPACE)):
        services.close_namespace(actor=personas.developer, namespace_name=personal.name, confirmation=personal.name)


# --- Closing ---------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("A namespace with a job that has not ended stays open.")
@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING, JobState.STOPPING])
def test_a_namespace_with_a_job_that_has_not_ended_stays_open(personas: Personas, state: JobState) -> None:
    make_job(personas.namespace, personas.owner, state=state)
    before = roles()
    with pytest.raises(Conflict, match=pattern(job_messages.NAMESPACE_HAS_ACTIVE_JOBS, namespace="'team'", count=1)):
        close(personas)
    assert roles() == before
    assert not AuditEntry.objects.filter(action="namespace.close").exists()


def test_a_closed_namespace_is_invisible_even_to_admins(personas: Personas) -> None:
    job = make_job(personas.namespace, personas.owner, state=JobState.SUCCEEDED)
    close(personas)
    for name in ("admin", "owner", "viewer"):
        assert not may(personas.user(name), Scope.NAMESPACE_READ, personas.namespace)
        assert personas.client(name).get("/n/team/jobs").status_code == 404
        assert personas.client(name).get(f"/api/v1/jobs/{job.pk}").status_code == 404


def test_its_name_is_never_assigned_again(personas: Personas) -> None:
    close(personas)
    with pytest.raises(Conflict, match=pattern(messages.NAMESPACE_NAME_TAKEN)):
        services.create_namespace(actor=personas.admin, name="team")


def test_closing_ends_service_tokens_and_invitations(personas: Personas) -> None:
    _, secret = tokens.create_service_token(
        actor=personas.owner, namespace_name="team", name="nightly", role=Role.DEVELOPER
    )
    link = invitations.invite(actor=personas.owner, namespace_name="team", invitee="a@example.org", role=Role.VIEWER)
    close(personas)
    assert ApiToken.objects.get(user__username="team/nightly").revoked is not None
    with pytest.raises(NotFound):
        invitations.behind_link(link.secret)
    assert secret


def test_a_namespace_read_before_its_closing_cannot_be_held_open(personas: Personas) -> None:
    seen_before = Namespace.objects.get(name="team")
    close(personas)
    with pytest.raises(NotFound):
        hold_open(seen_before)


@pytest.mark.parametrize("name", ["developer", "viewer"])
def test_only_owners_close(personas: Personas, name: str) -> None:
    with pytest.raises(Forbidden):
        services.close_namespace(actor=personas.user(name), namespace_name="team", confirmation="team")


def test_closing_is_in_the_audit_log_with_the_members(personas: Personas) -> None:
    close(personas)
    row = AuditEntry.objects.get(action="namespace.close")
    assert row.detail["members"]["viewer"] == "viewer"


# --- The last owner --------------------------------------------------------------------------------------------------
def test_an_owner_whose_account_is_closed_does_not_count(personas: Personas) -> None:
    assert Membership.objects.filter(namespace=personas.namespace, user=personas.disabled, role=Role.OWNER).exists()
    with pytest.raises(Conflict, match=pattern(messages.LAST_OWNER)):
        services.remove_member(actor=personas.owner, namespace_name="team", username="owner")


def test_a_service_token_is_no_owner_and_cannot_be_made_one(personas: Personas) -> None:
    tokens.create_service_token(actor=personas.owner, namespace_name="team", name="nightly", role=Role.DEVELOPER)
    with pytest.raises(NotFound):
        services.set_member(actor=personas.owner, namespace_name="team", username="team/nightly", role=Role.OWNER)
    with pytest.raises(NotFound):
        services.remove_member(actor=personas.owner, namespace_name="team", username="team/nightly")


def test_a_former_member_finds_nothing(personas: Personas) -> None:
    services.remove_member(actor=personas.viewer, namespace_name="team", username="viewer")
    with pytest.raises(NotFound):
        namespace_for(personas.viewer, "team", Scope.NAMESPACE_READ)


def test_a_new_member_of_no_account_is_refused(personas: Personas) -> None:
    with pytest.raises(NotFound, match=pattern(messages.ACCOUNT_NOT_FOUND_ASK_ADMIN, name="'ghost'")):
        services.set_member(actor=personas.owner, namespace_name="team", username="ghost", role=Role.VIEWER)
    assert make_user("late").is_active


# --- Members ---------------------------------------------------------------------------------------------------------
def test_the_last_owner_neither_steps_down_nor_leaves(personas: Personas) -> None:
    before = roles()
    with pytest.raises(Conflict):
        services.set_member(actor=personas.owner, namespace_name="team", username="owner", role=Role.VIEWER)
    with pytest.raises(Conflict):
        services.remove_member(actor=personas.owner, namespace_name="team", username="owner")
    assert roles() == before


def test_removing_a_member_wakes_their_sockets(personas: Personas, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[list[int]] = []
    monkeypatch.setattr(services, "wake_sockets", lambda ids: woken.append(list(ids)))
    services.remove_member(actor=personas.owner, namespace_name="team", username="viewer")
    assert woken == [[personas.viewer.pk]]


# --- A path that was normalised on its way ---------------------------------------------------------------------------
@pytest.mark.invariant("A request closes a namespace only if its body repeats the name of the namespace.")
@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": ".."}, {"name": "Team"}])
def test_a_request_that_does_not_repeat_the_name_closes_nothing(personas: Personas, body: dict[str, object]) -> None:
    client = personas.client("owner")
    # The path that ``members/..`` of a client is normalised to.
    answer = client.delete("/api/v1/namespaces/team/", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (422, "validation_failed")
    client.post("/n/team/close", body)
    assert Namespace.objects.get(name="team").closed is None


def test_a_request_without_a_body_closes_nothing(personas: Personas) -> None:
    assert personas.client("owner").delete("/api/v1/namespaces/team").status_code == 422
    assert Namespace.objects.get(name="team").closed is None


def test_a_request_that_repeats_the_name_closes_it(personas: Personas) -> None:
    url = "/api/v1/namespaces/team"
    assert personas.client("owner").delete(url, {"name": "team"}, content_type="application/json").status_code == 204


def test_a_stranger_learns_nothing_by_closing(personas: Personas) -> None:
    for name in ("team", "nowhere"):
        url = f"/api/v1/namespaces/{name}"
        assert personas.client("stranger").delete(url, {}, content_type="application/json").status_code == 404
