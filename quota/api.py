"""Quotas over HTTP: limits and usage of namespaces, requests for more, and the platform's capacity."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.common.clock import now as wall_clock
from portal.common.errors import ValidationFailed
from portal.common.pagination import PARAMETERS, paginate
from quota import messages, selectors, services
from quota.models import Kind, QuotaRequest, RequestState
from quota.resources import HELD, HOURS_OF, RESOURCES
from rbac.access import namespace_for, signed_in
from rbac.scopes import Scope
from rbac.services import require_admin

LONGEST_LOOK_BACK = 366  # days


# --- Shapes ----------------------------------------------------------------------------------------------------------
def _numbers(name: str, resources: tuple[str, ...], *, null: bool, **fields: Any) -> serializers.Serializer[Any]:
    return inline_serializer(name, {each: serializers.FloatField(allow_null=null, **fields) for each in resources})


_REASON = serializers.CharField(
    max_length=500, required=False, help_text="Why, for the audit trail and for those concerned."
)
_QUOTA = inline_serializer(
    "Quota",
    {
        "limits": _numbers("QuotaLimits", RESOURCES, null=True),
        "borrow": _numbers("QuotaBorrow", HELD, null=False),
        "reserved": _numbers("QuotaReserved", HELD, null=False),
        "used": _numbers("QuotaUsed", RESOURCES, null=False),
        "headroom": _numbers("QuotaHeadroom", RESOURCES, null=True),
        "kept": inline_serializer("QuotaKept", {str(kind): serializers.IntegerField() for kind in Kind}),
    },
)
_LIMITS = inline_serializer(
    "QuotaChange",
    {
        "limits": _numbers("QuotaNewLimits", RESOURCES, null=True, required=False),
        "borrow": _numbers("QuotaNewBorrow", HELD, null=True, required=False),
        "reason": _REASON,
    },
)
_CAPACITY = inline_serializer("PlatformCapacity", {"capacity": _numbers("Capacities", HELD, null=True)})
_NEW_CAPACITY = inline_serializer(
    "PlatformCapacityChange",
    {"capacity": _numbers("NewCapacities", HELD, null=True, required=False), "reason": _REASON},
)
_HOURS = {name: serializers.FloatField() for name in HOURS_OF}
_USAGE = inline_serializer(
    "Usage",
    {
        "since": serializers.DateTimeField(),
        "until": serializers.DateTimeField(),
        "users": inline_serializer("UsageOfUser", {"username": serializers.CharField(), **_HOURS}, many=True),
        "jobs": inline_serializer(
            "UsageOfJob",
            {
                "id": serializers.UUIDField(),
                "name": serializers.CharField(),
                "username": serializers.CharField(),
                **_HOURS,
            },
            many=True,
        ),
        "more": inline_serializer(
            "MoreUsage", {"users": serializers.IntegerField(), "jobs": serializers.IntegerField()}
        ),
    },
)


class WishOutput(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    namespace = serializers.CharField()
    asker = serializers.CharField()
    asked = serializers.DateTimeField()
    limits = _numbers("QuotaWishLimits", RESOURCES, null=False, required=False)
    reason = serializers.CharField()
    state = serializers.ChoiceField(choices=RequestState.choices)
    answer = serializers.CharField()
    answered = serializers.DateTimeField(allow_null=True)
    answered_by = serializers.CharField(allow_null=True)


_REQUESTS = inline_serializer(
    "QuotaWishPage", {"results": WishOutput(many=True), "next": serializers.CharField(allow_null=True)}
)
_NEW_REQUEST = inline_serializer(
    "NewQuotaWish",
    {
        "limits": _numbers("NewQuotaWishLimits", RESOURCES, null=False, required=False),
        "reason": serializers.CharField(max_length=500),
    },
)
_ANSWER = inline_serializer(
    "QuotaWishAnswer", {"approve": serializers.BooleanField(), "reason": serializers.CharField(max_length=500)}
)


def _rendered(row: QuotaRequest) -> dict[str, Any]:
    return {
        "id": row.pk,
        "namespace": row.namespace.name,
        "asker": row.asker.username,
        "asked": row.asked,
        "limits": row.limits,
        "reason": row.reason,
        "state": row.state,
        "answer": row.answer,
        "answered": row.answered,
        "answered_by": row.answered_by.username if row.answered_by else None,
    }


def _mapping(body: Any, field: str) -> Mapping[str, Any]:
    """Return a mapping of resources to numbers from the body; empty if it is missing. Raises ValidationFailed."""
    found = body.get(field, {}) if isinstance(body, Mapping) else None
    if not isinstance(found, Mapping):
        raise ValidationFailed({field: [messages.AMOUNTS_NOT_AN_OBJECT()]})
    return found


def _reason(body: Any, default: str = "") -> str:
    reason = body.get("reason", default) if isinstance(body, Mapping) else default
    return reason if isinstance(reason, str) else ""


# --- A namespace -----------------------------------------------------------------------------------------------------
class QuotaView(APIView):
    """Limits, reservations, usage and headroom of a namespace. Hours are those of this month."""

    @extend_schema(responses=_QUOTA)
    def get(self, request: Request, ns: str) -> Response:
        return Response(selectors.quota_of(namespace_for(request.user, ns, Scope.QUOTA_READ)))

    @extend_schema(request=_LIMITS, responses=_QUOTA)
    def put(self, request: Request, ns: str) -> Response:
        """Set limits: ``{"limits": {"cpu": 32}}`` or the resources alone. For admins.

        Resources that are not named keep their limits; null restores the default. ``borrow`` is the amount that the
        namespace may hold beyond its limit while others do not need it.
        """
        namespace = namespace_for(request.user, ns, Scope.QUOTA_READ)
        actor, body = signed_in(request.user), request.data
        require_admin(actor)
        wrapped = isinstance(body, Mapping) and bool({"limits", "borrow"} & set(body))
        services.set_limits(
            actor=actor,
            namespace=namespace,
            limits=_mapping(body if wrapped else {"limits": body}, "limits"),
            borrow=_mapping(body, "borrow") if wrapped else {},
            reason=_reason(body, services.BY_API) if wrapped else services.BY_API,
        )
        return Response(selectors.quota_of(namespace))


class UsageView(APIView):
    """Hours used by a namespace, by user and by job."""

    @extend_schema(responses=_USAGE, parameters=[OpenApiParameter("days", int, description="How far back; 30.")])
    def get(self, request: Request, ns: str) -> Response:
        namespace = namespace_for(request.user, ns, Scope.QUOTA_READ)
        until = wall_clock()
        since = until - timedelta(days=_days(request.query_params.get("days", "30")))
        found = selectors.usage(namespace, since, until)
        more = {"users": found.more_users, "jobs": found.more_jobs}
        return Response({"since": since, "until": until, "users": found.users, "jobs": found.jobs, "more": more})


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= LONGEST_LOOK_BACK):
        raise ValidationFailed({"days": [messages.DAYS_INVALID(most=LONGEST_LOOK_BACK)]})
    return int(text)


class QuotaRequestsView(APIView):
    """Requests of a namespace for more quota, newest first."""

    @extend_schema(parameters=[*PARAMETERS], responses=_REQUESTS)
    def get(self, request: Request, ns: str) -> Response:
        namespace = namespace_for(request.user, ns, Scope.QUOTA_READ)
        rows = selectors.quota_requests(namespace=namespace)
        return Response(paginate(rows, request.query_params, order=("-asked", "-id"), render=_rendered))

    @extend_schema(request=_NEW_REQUEST, responses={201: WishOutput})
    def post(self, request: Request, ns: str) -> Response:
        """Create a request for other limits. At most one request of a namespace can be open."""
        quota_request = services.ask_for_more(
            actor=signed_in(request.user),
            namespace_name=ns,
            limits=_mapping(request.data, "limits"),
            reason=_reason(request.data),
        )
        return Response(_rendered(quota_request), status=status.HTTP_201_CREATED)


class QuotaRequestView(APIView):
    """One request for more quota."""

    @extend_schema(responses={200: WishOutput})
    def delete(self, request: Request, wish_id: int) -> Response:
        """Withdraw a request of one's own."""
        quota_request = services.withdraw(actor=signed_in(request.user), request_id=wish_id)
        return Response(_rendered(quota_request))

    @extend_schema(responses=WishOutput, request=_ANSWER)
    def post(self, request: Request, wish_id: int) -> Response:
        """Approve a request, which sets the limits, or refuse it. For admins."""
        require_admin(signed_in(request.user))
        approve = request.data.get("approve") if isinstance(request.data, Mapping) else None
        if not isinstance(approve, bool):
            raise ValidationFailed({"approve": [messages.NOT_A_BOOLEAN()]})
        quota_request = services.answer(
            actor=signed_in(request.user),
            request_id=wish_id,
            approve=approve,
            reason=_reason(request.data),
        )
        return Response(_rendered(quota_request))


# --- The platform ----------------------------------------------------------------------------------------------------
class AllQuotaRequestsView(APIView):
    """Requests of all namespaces, newest first. For admins."""

    @extend_schema(
        parameters=[OpenApiParameter("state", str, enum=[str(each) for each in RequestState]), *PARAMETERS],
        responses=_REQUESTS,
    )
    def get(self, request: Request) -> Response:
        require_admin(signed_in(request.user))
        rows = selectors.quota_requests()
        if (wanted := request.query_params.get("state")) is not None:
            if wanted not in RequestState.values:
                raise ValidationFailed({"state": [messages.STATE_UNKNOWN(names=", ".join(RequestState.values))]})
            rows = rows.filter(state=wanted)
        return Response(paginate(rows, request.query_params, order=("-asked", "-id"), render=_rendered))


class CapacityView(APIView):
    """Capacities of the platform for all namespaces together. For admins. Null means unlimited."""

    @extend_schema(responses=_CAPACITY)
    def get(self, request: Request) -> Response:
        require_admin(signed_in(request.user))
        return Response(_capacity())

    @extend_schema(request=_NEW_CAPACITY, responses=_CAPACITY)
    def put(self, request: Request) -> Response:
        actor = signed_in(request.user)
        require_admin(actor)
        services.set_capacity(
            actor=actor,
            amounts=_mapping(request.data, "capacity"),
            reason=_reason(request.data, services.BY_API),
        )
        return Response(_capacity())


def _capacity() -> dict[str, Any]:
    found = selectors.capacity()
    return {"capacity": {name: found.get(name) for name in HELD}}
