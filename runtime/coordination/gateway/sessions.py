"""Tokens of etcd that this gateway has passed on, each with its account. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from runtime.coordination.gateway.authorization import Scope

# etcd forgets a token five minutes after its last use. An older one is not worth the memory.
MOST_SECONDS = 3600.0
MOST_TOKENS = 20_000
MOST_TOKENS_PER_ACCOUNT = 2_000


@dataclass(frozen=True)
class _Session:
    scope: Scope
    until: float


class Sessions:
    """Bounded table of tokens. The oldest one is dropped first; its holder then signs in again."""

    def __init__(
        self,
        seconds: float = MOST_SECONDS,
        tokens: int = MOST_TOKENS,
        tokens_per_account: int = MOST_TOKENS_PER_ACCOUNT,
    ) -> None:
        self._seconds = seconds
        self._most = tokens
        self._most_per_account = tokens_per_account
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._of_account: dict[str, OrderedDict[str, None]] = {}

    def add(self, token: str, scope: Scope, now: float) -> None:
        self._drop(token)
        self._sessions[token] = _Session(scope, now + self._seconds)
        own = self._of_account.setdefault(scope.account, OrderedDict())
        own[token] = None
        if len(own) > self._most_per_account:
            self._drop(next(iter(own)))
        if len(self._sessions) > self._most:
            self._drop(next(iter(self._sessions)))

    def scope(self, token: str, now: float) -> Scope | None:
        """Return the scope of the account to which the token was given, if it is known and not too old."""
        session = self._sessions.get(token)
        if session is None:
            return None
        if now >= session.until:
            self._drop(token)
            return None
        return session.scope

    def token(self, account: str, now: float) -> str | None:
        """Return the latest token of an account that is not too old, if there is one."""
        token = next(reversed(self._of_account.get(account, {})), None)
        return token if token is not None and self.scope(token, now) is not None else None

    def _drop(self, token: str) -> None:
        session = self._sessions.pop(token, None)
        if session is None:
            return
        own = self._of_account[session.scope.account]
        del own[token]
        if not own:
            del self._of_account[session.scope.account]
