"""Settings of the gateway, from the environment. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from runtime.coordination.base import CoordinationError
from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.gateway.limits import Limits, Rate
from runtime.coordination.gateway.service import HELD_SECONDS

SERVERS = "REGATTA_COORDINATION_SERVERS"
KEY = "REGATTA_COORDINATION_GATEWAY_KEY"
LISTEN = "REGATTA_COORDINATION_GATEWAY_LISTEN"
HEALTH = "REGATTA_COORDINATION_GATEWAY_HEALTH"
HELD = "REGATTA_COORDINATION_GATEWAY_LEASE_SECONDS"
WRITE_BYTES = "REGATTA_COORDINATION_GATEWAY_WRITE_BYTES"
STORED_BYTES = "REGATTA_COORDINATION_GATEWAY_STORED_BYTES"
_LEAST_KEY = 32


class SettingsInvalid(Exception):
    """A setting is missing or wrong. The message names it and its form."""


@dataclass(frozen=True)
class Settings:
    """``site`` is the etcd, without an account; ``key`` is shared by all replicas of the gateway.

    ``held_seconds``: how long etcd keeps a lease at least.
    """

    site: EtcdAddress
    key: bytes = field(repr=False)
    listen: str
    health: str
    limits: Limits
    held_seconds: int

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Raises SettingsInvalid."""
        return cls(
            _site(environment.get(SERVERS, "")),
            _key(environment.get(KEY, "")),
            _place(environment, LISTEN, "0.0.0.0:2379"),
            _place(environment, HEALTH, "0.0.0.0:2381"),
            _limits(environment),
            _number(environment, HELD, "seconds, such as 130", HELD_SECONDS),
        )


def _site(url: str) -> EtcdAddress:
    if not url:
        raise SettingsInvalid(f"{SERVERS} is not set. Write the address of etcd without an account: etcd://HOST:2379.")
    try:
        address = EtcdAddress.parse(url)
    except CoordinationError as error:
        raise SettingsInvalid(f"{SERVERS} is wrong. {error}") from None
    if address.user:
        raise SettingsInvalid(f"{SERVERS} contains an account. The gateway needs none: remove user and password.")
    return address


def _key(text: str) -> bytes:
    if len(text) < _LEAST_KEY:
        raise SettingsInvalid(
            f"{KEY} has {len(text)} characters. Write at least {_LEAST_KEY} random ones, the same for each replica."
        )
    return text.encode()


def _place(environment: Mapping[str, str], name: str, default: str) -> str:
    place = environment.get(name) or default
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsInvalid(f"{name} is {place!r}. Write HOST:PORT, such as {default}.")
    return place


def _limits(environment: Mapping[str, str]) -> Limits:
    default = Limits()
    rate = _number(environment, WRITE_BYTES, "bytes per second, such as 262144", int(default.written_bytes.per_second))
    stored = _number(environment, STORED_BYTES, "bytes, such as 67108864", default.stored_bytes)
    return replace(default, written_bytes=Rate(float(rate), default.written_bytes.burst), stored_bytes=stored)


def _number(environment: Mapping[str, str], name: str, form: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise SettingsInvalid(f"{name} is {text!r}. Write a number of {form}.")
    return int(text)
