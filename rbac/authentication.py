"""API authentication by a personal token in the Authorization header. The REST framework authenticates sessions."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from portal.common.clock import now as wall_clock
from portal.common.monitoring import log_context
from rbac.models import ApiToken, User
from rbac.selectors import token_behind

# ``last_used`` is written at most this often: reading must not cost a write.
_LAST_USED_GRAIN = timedelta(minutes=1)


class TokenAuthentication(BaseAuthentication):
    """``Authorization: Bearer rgt_...``."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Return the account and its token; None without a token. Raises AuthenticationFailed for an invalid one."""
        scheme, _, secret = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        now = wall_clock()
        token = token_behind(secret.strip().decode("latin-1"), now)
        if token is None:
            raise AuthenticationFailed(
                "This token is not valid: it was revoked, has expired, or is mistyped. Make a new one."
            )
        _note_use(token, now)
        log_context.note(user=token.user.pk)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge; it makes the response to a caller without credentials 401 instead of 403."""
        return 'Bearer realm="regatta"'


def _note_use(token: ApiToken, now: datetime) -> None:
    stale = Q(last_used=None) | Q(last_used__lt=now - _LAST_USED_GRAIN)
    if token.last_used is None or token.last_used < now - _LAST_USED_GRAIN:
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used=now)
