"""Decision whether an account of an attempt may send a request to etcd. Pure.

Each function returns the reason of a refusal, or an empty text if the request is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyetcd import etcdrpc

from runtime import contract
from runtime.coordination.etcd_accounts import account_name
from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.gateway.lease_ids import LeaseIds

# Depth of nested transactions. The client of the runtime sends three levels at most.
MOST_LEVELS = 4
_NAME = re.compile(r"regatta-([A-Za-z0-9][A-Za-z0-9_.-]*)-([0-9]{1,9})")

FOREIGN_KEY = "the key is not below the prefix of this account"
FOREIGN_RANGE = "the range is not below the prefix of this account"
FOREIGN_LEASE = "the lease belongs to another account"
CHOSEN_LEASE = "the gateway chooses the id of a lease"
TOO_DEEP = f"transactions are nested more than {MOST_LEVELS} levels deep"
EMPTY_OPERATION = "an operation of the transaction is empty"
UNKNOWN_REQUEST = "the gateway does not pass this request"


@dataclass(frozen=True)
class Scope:
    """Keys and leases of one account. ``begin`` is included in its range of keys, ``end`` is not."""

    account: str
    begin: bytes
    end: bytes
    leases: LeaseIds

    def key(self, key: bytes) -> str:
        return "" if key.startswith(self.begin) else FOREIGN_KEY

    def keys(self, key: bytes, range_end: bytes) -> str:
        """Check a key, or a range if ``range_end`` is not empty. A ``range_end`` of one zero means: without an end."""
        if not range_end:
            return self.key(key)
        return self.key(key) or ("" if key < range_end <= self.end else FOREIGN_RANGE)

    def lease(self, lease: int) -> str:
        return "" if self.leases.belongs(lease, self.account) else FOREIGN_LEASE


def scope_of(account: str, site: EtcdAddress, leases: LeaseIds) -> Scope | None:
    """Return the scope of an account, or None if it is not an account of an attempt."""
    match = _NAME.fullmatch(account)
    if match is None or account_name(match[1], int(match[2])) != account:
        return None
    span = site.span(contract.attempt_prefix(match[1], int(match[2])))
    return Scope(account, span["key"], span["range_end"], leases)


def refusal(request: Any, scope: Scope) -> str:
    """Return why the account may not send ``request``, a message of etcd's API."""
    check = _CHECKS.get(type(request))
    return check(request, scope) if check else UNKNOWN_REQUEST


def writes(request: Any) -> int:
    """Return the number of writes in a request that is allowed."""
    if isinstance(request, (etcdrpc.PutRequest, etcdrpc.DeleteRangeRequest)):
        return 1
    if isinstance(request, etcdrpc.TxnRequest):
        return sum(writes(getattr(one, one.WhichOneof("request"))) for one in _operations(request))
    return 0


def puts(request: Any) -> bool:
    """Return whether a request that is allowed can store something."""
    if isinstance(request, etcdrpc.TxnRequest):
        return any(puts(getattr(one, one.WhichOneof("request"))) for one in _operations(request))
    return isinstance(request, etcdrpc.PutRequest)


def _range(request: Any, scope: Scope) -> str:
    return scope.keys(request.key, request.range_end)


def _put(request: Any, scope: Scope) -> str:
    return scope.key(request.key) or (scope.lease(request.lease) if request.lease else "")


def _txn(request: Any, scope: Scope, level: int = 1) -> str:
    if level > MOST_LEVELS:
        return TOO_DEEP
    compares = (scope.keys(one.key, one.range_end) for one in request.compare)
    operations = (_operation(one, scope, level) for one in _operations(request))
    return next((why for found in (compares, operations) for why in found if why), "")


def _operation(operation: Any, scope: Scope, level: int) -> str:
    field = operation.WhichOneof("request")
    if field is None:
        return EMPTY_OPERATION
    if field == "request_txn":
        return _txn(operation.request_txn, scope, level + 1)
    return refusal(getattr(operation, field), scope)


def _operations(request: Any) -> Iterator[Any]:
    yield from request.success
    yield from request.failure


def _lease_grant(request: Any, scope: Scope) -> str:
    return CHOSEN_LEASE if request.ID else ""


def _lease(request: Any, scope: Scope) -> str:
    return scope.lease(request.ID)


def _watch(request: Any, scope: Scope) -> str:
    field = request.WhichOneof("request_union")
    return _range(request.create_request, scope) if field == "create_request" else ""


_CHECKS: Mapping[type, Callable[[Any, Scope], str]] = {
    etcdrpc.RangeRequest: _range,
    etcdrpc.PutRequest: _put,
    etcdrpc.DeleteRangeRequest: _range,
    etcdrpc.TxnRequest: _txn,
    etcdrpc.LeaseGrantRequest: _lease_grant,
    etcdrpc.LeaseRevokeRequest: _lease,
    etcdrpc.LeaseKeepAliveRequest: _lease,
    etcdrpc.WatchRequest: _watch,
}
