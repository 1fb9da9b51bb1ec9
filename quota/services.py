"""Changes of quotas by people: limits, capacity, requests and their answers. Each is recorded in the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, NotFound, ValidationFailed
from quota import messages
from quota.models import Capacity, Limit, QuotaRequest, RequestState
from quota.resources import HELD, RESOURCES, WHOLE
from quota.selectors import borrowing_of, capacity, limits_of
from rbac.access import namespace_for
from rbac.audit import log as audit_log
from rbac.models import Namespace, User
from rbac.scopes import Scope
from rbac.services import require_admin

LARGEST_LIMIT = 10**18
BY_API = "Set through the API."


# --- Limits ----------------------------------------------------------------------------------------------------------
@transaction.atomic
def set_limits(
    *,
    actor: User,
    namespace: Namespace,
    limits: Mapping[str, Any],
    borrow: Mapping[str, Any] | None = None,
    reason: str = BY_API,
) -> None:
    """Set some limits of a namespace and the amounts that it may borrow. None restores the default.

    Held amounts stay held: no attempt starts until it fits under the new limit. Raises Forbidden if the actor is no
    admin, ValidationFailed with a message per field.
    """
    require_admin(actor)
    stated_reason, lent = audit_log.stated(reason), dict(borrow or {})
    _validate(limits, lent)
    Namespace.objects.select_for_update().get(pk=namespace.pk)
    before = _some_of(namespace, limits, lent)
    for resource in {**limits, **lent}:
        _set(namespace, resource, limits, lent)
    after = _some_of(namespace, limits, lent)
    audit_log.record(
        "quota.set",
        namespace.name,
        actor=actor,
        namespace=namespace,
        before=before,
        after=after,
        reason=stated_reason,
    )


def _some_of(namespace: Namespace, limits: Mapping[str, Any], borrow: Mapping[str, Any]) -> dict[str, Any]:
    """Return the present values of the limits to be changed; amounts to borrow have keys such as ``borrow.cpu``."""
    now, lent = limits_of(namespace), borrowing_of(namespace)
    return {name: now[name] for name in limits} | {f"borrow.{name}": lent[name] for name in borrow}


def _set(namespace: Namespace, resource: str, limits: Mapping[str, Any], borrow: Mapping[str, Any]) -> None:
    row, _ = Limit.objects.get_or_create(namespace=namespace, resource=resource, defaults={"amount": None})
    row.amount = limits.get(resource, row.amount)
    row.borrow = (borrow[resource] or 0) if resource in borrow else row.borrow
    if row.amount is None and not row.borrow:
        row.delete()
    else:
        row.save()


def _validate(limits: Mapping[str, Any], borrow: Mapping[str, Any], known: tuple[str, ...] = RESOURCES) -> None:
    errors = {
        str(name): [stated_reason]
        for name, value in limits.items()
        if (stated_reason := _wrong_with(name, value, known))
    }
    errors |= {
        f"borrow.{name}": [stated_reason]
        for name, value in borrow.items()
        if (stated_reason := _wrong_with(name, value, HELD))
    }
    if not limits and not borrow:
        errors["limits"] = [messages.NO_FIELD_GIVEN(names=", ".join(known))]
    if errors:
        raise ValidationFailed(errors)


def _wrong_with(resource: str, amount: Any, known: tuple[str, ...]) -> str:
    """Return the message for an invalid limit; empty for a valid one."""
    if resource not in known:
        return messages.RESOURCE_UNKNOWN(names=", ".join(known))
    if amount is None:
        return ""
    if isinstance(amount, bool) or not isinstance(amount, int | float) or amount != amount:
        return messages.LIMIT_NOT_A_NUMBER()
    if amount < 0:
        return messages.LIMIT_NEGATIVE()
    if amount > LARGEST_LIMIT:
        return messages.LIMIT_TOO_LARGE()
    return messages.NOT_A_WHOLE_NUMBER() if resource in WHOLE and amount != int(amount) else ""


@transaction.atomic
def set_capacity(*, actor: User, amounts: Mapping[str, Any], reason: str = BY_API) -> None:
    """Set the platform's capacities for all namespaces together; None: unlimited. Raises like ``set_limits``."""
    require_admin(actor)
    stated_reason = audit_log.stated(reason)
    _validate(amounts, {}, HELD)
    list(Capacity.objects.select_for_update().order_by("resource"))
    before = {name: capacity().get(name) for name in amounts}
    for name, amount in amounts.items():
        if amount is None:
            Capacity.objects.filter(resource=name).delete()
        else:
            Capacity.objects.update_or_create(resource=name, defaults={"amount": amount})
    audit_log.record(
        "capacity.set",
        "platform",
        actor=actor,
        before=before,
        after=dict(amounts),
        reason=stated_reason,
    )


# --- Requests for more -----------------------------------------------------------------------------------------------
@transaction.atomic
def ask_for_more(*, actor: User, namespace_name: str, limits: Mapping[str, Any], reason: str) -> QuotaRequest:
    """Create a request for other limits. Raises NotFound, Forbidden, ValidationFailed, and Conflict if one is open."""
    namespace = namespace_for(actor, namespace_name, Scope.JOB_WRITE)
    stated_reason = audit_log.stated(reason)
    _validate(limits, {})
    if errors := {name: [messages.REQUESTED_AMOUNT_MISSING()] for name, amount in limits.items() if amount is None}:
        raise ValidationFailed(errors)
    try:
        with transaction.atomic():
            quota_request = QuotaRequest.objects.create(
                namespace=namespace, asker=actor, asked=wall_clock(), limits=dict(limits), reason=stated_reason
            )
    except IntegrityError:
        raise Conflict(messages.QUOTA_REQUEST_ALREADY_OPEN()) from None
    audit_log.record(
        "quota.ask",
        namespace.name,
        actor=actor,
        namespace=namespace,
        after=quota_request.limits,
        reason=stated_reason,
    )
    return quota_request


@transaction.atomic
def withdraw(*, actor: User, request_id: int) -> QuotaRequest:
    """Withdraw an open request of one's own. Raises NotFound, and Conflict if it has been answered."""
    quota_request = _open(QuotaRequest.objects.filter(asker=actor), request_id)
    namespace_for(actor, quota_request.namespace.name, Scope.JOB_WRITE)
    return _close(quota_request, actor, RequestState.WITHDRAWN, "")


@transaction.atomic
def answer(*, actor: User, request_id: int, approve: bool, reason: str) -> QuotaRequest:
    """Approve a request, which sets the limits, or refuse it. For admins. Raises Forbidden, NotFound, Conflict."""
    require_admin(actor)
    stated_reason = audit_log.stated(reason)
    quota_request = _open(QuotaRequest.objects.all(), request_id)
    if approve:
        set_limits(
            actor=actor,
            namespace=quota_request.namespace,
            limits=quota_request.limits,
            reason=stated_reason,
        )
    return _close(quota_request, actor, RequestState.APPROVED if approve else RequestState.REFUSED, stated_reason)


def _open(quota_requests: Any, request_id: int) -> QuotaRequest:
    quota_request: QuotaRequest | None = (
        quota_requests.select_for_update(of=("self",)).select_related("namespace").filter(pk=request_id).first()
    )
    if quota_request is None:
        raise NotFound(messages.QUOTA_REQUEST_NOT_FOUND())
    if quota_request.state != RequestState.OPEN:
        raise Conflict(messages.QUOTA_REQUEST_ANSWERED(state=quota_request.state))
    return quota_request


_VERBS = {RequestState.APPROVED: "approve", RequestState.REFUSED: "refuse", RequestState.WITHDRAWN: "withdraw"}


def _close(quota_request: QuotaRequest, actor: User, state: RequestState, stated_reason: str) -> QuotaRequest:
    quota_request.state, quota_request.answered_by, quota_request.answered, quota_request.answer = (
        state,
        actor,
        wall_clock(),
        stated_reason,
    )
    quota_request.save(update_fields=["state", "answered_by", "answered", "answer"])
    audit_log.record(
        f"quota.{_VERBS[state]}",
        quota_request.namespace.name,
        actor=actor,
        namespace=quota_request.namespace,
        detail={"request": quota_request.pk, "limits": quota_request.limits},
        reason=stated_reason,
    )
    return quota_request
