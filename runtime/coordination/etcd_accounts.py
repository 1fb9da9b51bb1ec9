"""Accounts of attempts in etcd: one user and one role each, so that no job can access another's keys.

Only the code that starts attempts uses this module: the address of the whole site, with the right to create users,
stays there.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from pyetcd import etcdrpc
from pyetcd.etcdrpc import auth_pb2

from runtime import contract
from runtime.coordination.base import AccessDenied, CoordinationError
from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.etcd_connection import (
    AUTH_ENABLE,
    DELETE_RANGE,
    LEASE_GRANT,
    LEASE_REVOKE,
    RANGE,
    ROLE_ADD,
    ROLE_DELETE,
    ROLE_GRANT_PERMISSION,
    ROLE_LIST,
    USER_ADD,
    USER_CHANGE_PASSWORD,
    USER_DELETE,
    USER_GRANT_ROLE,
    USER_LIST,
    Connection,
    Method,
    Refused,
)

# Prefix of the keys of every attempt, and of the name of its user and role.
_JOBS_PREFIX = "/regatta/"
_OURS = "regatta-"
_ROOT = "root"  # a role, and the account that etcd requires to have it
_EXISTS = ("user name already exists", "role name already exists")
_IS_GONE = ("user name not found", "role name not found")


def guard(site: str) -> bool:
    """Enable authentication in the etcd of ``site``, with the account that ``site`` names as its administrator.

    Returns False if it was enabled before. Raises CoordinationError.
    """
    address = EtcdAddress.parse(site)
    with contextlib.closing(Connection(address.with_account("", ""))) as connection:
        try:
            _make_root(connection, address)
        except CoordinationError:
            _sign_in(address)
            return False
    return True


def _make_root(connection: Connection, address: EtcdAddress) -> None:
    user = etcdrpc.AuthUserAddRequest(name=address.user, password=address.password)
    _unless(_EXISTS, connection, USER_ADD, user)
    _unless(_EXISTS, connection, ROLE_ADD, etcdrpc.AuthRoleAddRequest(name=_ROOT))
    connection.call(USER_GRANT_ROLE, etcdrpc.AuthUserGrantRoleRequest(user=address.user, role=_ROOT))
    connection.call(AUTH_ENABLE, etcdrpc.AuthEnableRequest())


def _sign_in(address: EtcdAddress) -> None:
    with contextlib.closing(Connection(address)) as connection:
        connection.call(USER_LIST, etcdrpc.AuthUserListRequest())


def change_password(site: str, password: str) -> None:
    """Give the account of ``site`` another password. May be called again with the same address.

    Raises CoordinationError.
    """
    address = EtcdAddress.parse(site)
    try:
        with contextlib.closing(Connection(address)) as connection:
            request = etcdrpc.AuthUserChangePasswordRequest(name=address.user, password=password)
            connection.call(USER_CHANGE_PASSWORD, request)
    except AccessDenied:
        _sign_in(address.with_account(address.user, password))  # a call before this one has changed it


def open_account(site: str, job_id: str, attempt: int, password: str, gateway: str = "") -> str:
    """Return the address at which the attempt reaches the etcd of ``site``. May be called again.

    If ``site`` names a user, the attempt gets a user of its own that may access only its own keys. If it names none,
    all attempts share one access: the result is ``site``.
    With a ``gateway``, the attempt reaches its servers instead, with the same keys.

    Raises CoordinationError, also if etcd could not be written.
    """
    address = EtcdAddress.parse(site)
    with contextlib.closing(Connection(address)) as connection:
        span = _span(address, job_id, attempt)
        _try_out(connection, span)
        if not address.user:
            return site
        name = account_name(job_id, attempt)
        permission = auth_pb2.Permission(permType=auth_pb2.Permission.READWRITE, **span)
        grant = etcdrpc.AuthRoleGrantPermissionRequest(name=name, perm=permission)
        _unless(_EXISTS, connection, ROLE_ADD, etcdrpc.AuthRoleAddRequest(name=name))
        connection.call(ROLE_GRANT_PERMISSION, grant)
        _unless(_EXISTS, connection, USER_ADD, etcdrpc.AuthUserAddRequest(name=name, password=password))
        connection.call(USER_GRANT_ROLE, etcdrpc.AuthUserGrantRoleRequest(user=name, role=name))
        return _reached(address, gateway).with_account(name, password).url


def _reached(address: EtcdAddress, gateway: str) -> EtcdAddress:
    if not gateway:
        return address
    through = EtcdAddress.parse(gateway)
    return replace(address, servers=through.servers, ca=through.ca)


def close_account(site: str, job_id: str, attempt: int) -> None:
    """Remove the attempt's user and role, and all its keys. May be called again. Raises CoordinationError."""
    address = EtcdAddress.parse(site)
    with contextlib.closing(Connection(address)) as connection:
        if address.user:
            # The user first: then nothing writes after the keys are gone.
            name = account_name(job_id, attempt)
            _unless(_IS_GONE, connection, USER_DELETE, etcdrpc.AuthUserDeleteRequest(name=name))
            _unless(_IS_GONE, connection, ROLE_DELETE, etcdrpc.AuthRoleDeleteRequest(role=name))
        connection.call(DELETE_RANGE, etcdrpc.DeleteRangeRequest(**_span(address, job_id, attempt)))


def known_attempts(site: str) -> set[tuple[str, int]]:
    """Return the attempts, as (job id, number), that have a user, a role or keys in etcd. Raises CoordinationError."""
    address = EtcdAddress.parse(site)
    with contextlib.closing(Connection(address)) as connection:
        keys = connection.call(RANGE, etcdrpc.RangeRequest(**address.span(_JOBS_PREFIX), keys_only=True)).kvs
        found = {tuple(kv.key[len(address.key(_JOBS_PREFIX)) :].decode().split("/", 2)[:2]) for kv in keys}
        if address.user:
            names = [*connection.call(USER_LIST, etcdrpc.AuthUserListRequest()).users]
            names += connection.call(ROLE_LIST, etcdrpc.AuthRoleListRequest()).roles
            ours = (name.removeprefix(_OURS) for name in names if name.startswith(_OURS))
            found |= {tuple(name.rpartition("-")[::2]) for name in ours}
    return {(one[0], int(one[1])) for one in found if len(one) == 2 and one[1].isdecimal()}


def account_name(job_id: str, attempt: int) -> str:
    """Return the name of the attempt's user and role."""
    return f"{_OURS}{job_id}-{attempt}"


def _span(address: EtcdAddress, job_id: str, attempt: int) -> dict[str, bytes]:
    """Return the range of the attempt's keys."""
    return address.span(contract.attempt_prefix(job_id, attempt))


def _try_out(connection: Connection, span: dict[str, bytes]) -> None:
    """Check read access and free space for writes once, before every process of the attempt fails on them."""
    connection.call(RANGE, etcdrpc.RangeRequest(**span, count_only=True))
    lease = connection.call(LEASE_GRANT, etcdrpc.LeaseGrantRequest(TTL=1))
    connection.call(LEASE_REVOKE, etcdrpc.LeaseRevokeRequest(ID=lease.ID))


def _unless(texts: tuple[str, ...], connection: Connection, method: Method, request: Any) -> None:
    """Send the request. An answer that nothing is left to do counts as success."""
    try:
        connection.call(method, request)
    except Refused as refusal:
        if not any(part in str(refusal) for part in texts):
            raise
