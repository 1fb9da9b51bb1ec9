"""A namespace's quota over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from portal.common.errors import ValidationFailed
from quota.policy import HELD, RESOURCES
from quota.selectors import quota_of
from quota.services import set_limits
from rbac.access import namespace_for, signed_in
from rbac.scopes import Scope
from rbac.services import require_admin


def _numbers(name: str, resources: tuple[str, ...], *, null: bool) -> serializers.Serializer[Any]:
    return inline_serializer(name, {resource: serializers.FloatField(allow_null=null) for resource in resources})


_QUOTA = inline_serializer(
    "Quota",
    {
        "limits": _numbers("QuotaLimits", RESOURCES, null=True),
        "reserved": _numbers("QuotaReserved", HELD, null=False),
        "used": _numbers("QuotaUsed", RESOURCES, null=False),
        "headroom": _numbers("QuotaHeadroom", RESOURCES, null=True),
    },
)
_LIMITS = inline_serializer("QuotaChange", {"limits": _numbers("QuotaNewLimits", RESOURCES, null=True)})


class QuotaView(APIView):
    """What a namespace may use, holds, has used, and has left."""

    @extend_schema(responses=_QUOTA)
    def get(self, request: Request, ns: str) -> Response:
        return Response(quota_of(namespace_for(request.user, ns, Scope.QUOTA_READ)))

    @extend_schema(request=_LIMITS, responses=_QUOTA)
    def put(self, request: Request, ns: str) -> Response:
        """Set limits, for admins: ``{"limits": {"cpu": 32}}`` or the resources alone. Those not named stay."""
        namespace = namespace_for(request.user, ns, Scope.QUOTA_READ)
        actor = signed_in(request.user)
        require_admin(actor)
        set_limits(actor=actor, namespace=namespace, limits=_limits_in(request.data), request=request._request)
        return Response(quota_of(namespace))


def _limits_in(body: Any) -> Mapping[str, Any]:
    limits = body.get("limits", body) if isinstance(body, Mapping) else None
    if not isinstance(limits, Mapping):
        raise ValidationFailed({"limits": ["Write an object that maps resources to numbers."]})
    return limits
