"""The environment variables of the portal, each with its type, default and meaning.

An invalid value is refused at start with a message that names the variable: a portal that starts with a misread setting
is worse than one that does not start.
"""

from __future__ import annotations

import json
import os
import re
import resource
import secrets
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from portal.common.trusted_proxies import Network, network, too_wide
from runtime.coordination.base import CoordinationError
from runtime.coordination.etcd_address import EtcdAddress

_LARGEST_PORT = 65535
# A host name, a name with all its subdomains, an IPv4 address, or an IPv6 address in brackets.
_HOST_NAME = re.compile(r"\.?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_BUCKET = re.compile(
    r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/(?P<prefix>[A-Za-z0-9_-][A-Za-z0-9_./-]{0,99}?))?/?"
)
_IMAGE_REGISTRY = re.compile(
    r"([A-Za-z0-9-]+\.[A-Za-z0-9.-]+|[A-Za-z0-9.-]+:\d+|localhost)(:\d+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
)
_REDIS_DATABASE = re.compile(r"/?|/[0-9]{1,5}")
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}


def text(name: str, default: str) -> str:
    """Return the value of the variable unchanged, or the default."""
    return os.environ.get(name, default)


def flag(name: str, default: bool) -> bool:
    """Return a boolean. Raises ImproperlyConfigured for any other value."""
    raw = os.environ.get(name)
    if raw is None:
        return default
    lowered = raw.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ImproperlyConfigured(f"{name} is {raw!r}; write 1 or 0.")


def number(name: str, default: float, *, minimum: float = 0.0) -> float:
    """Return a number, at least ``minimum``. Raises ImproperlyConfigured otherwise."""
    raw = os.environ.get(name)
    if raw is None:
        return default
    try:
        value = float(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name} is {raw!r}; write a number.") from None
    if not value >= minimum:
        raise ImproperlyConfigured(f"{name} is {raw}; it must be at least {minimum:g}.")
    return value


def days_from(name: str, default: float, *, least: float) -> float:
    """Return a number of days, at least ``least``, or 0 for no limit. Raises ImproperlyConfigured otherwise."""
    value = number(name, default)
    if 0 < value < least:
        raise ImproperlyConfigured(f"{name} is {value:g}; it must be at least {least:g}, or 0 to keep all.")
    return value


def integer(name: str, default: int, *, minimum: int = 0) -> int:
    """Return an integer, at least ``minimum``. Raises ImproperlyConfigured otherwise."""
    value = number(name, default, minimum=minimum)
    if value != int(value):
        raise ImproperlyConfigured(f"{name} is {value:g}; write a whole number.")
    return int(value)


def other_port(name: str, port: int) -> int:
    """Return a second port, or 0 for none. Raises ImproperlyConfigured for the first one."""
    value = integer(name, 0)
    if value == port or value > _LARGEST_PORT:
        raise ImproperlyConfigured(f"{name} is {value}; write a port that PORT ({port}) is not, or 0 for none.")
    return value


def require_narrow(name: str, trusted: Sequence[Network]) -> None:
    """Refuse networks so wide that pods may be in them: user code could then claim any address. Raises
    ImproperlyConfigured."""
    if wide := too_wide(trusted):
        raise ImproperlyConfigured(
            f"{name} names {', '.join(map(str, wide))}, which may hold pods of jobs: they could claim any address. "
            "Write the addresses of your proxies or networks of at most /24 (IPv4) or /64 (IPv6), or give agents a "
            "port of their own with REGATTA_AGENT_PORT."
        )


def descriptors() -> int:
    """Return how many files and sockets this process may have open, capped at 8192."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(soft, 8192) if soft != resource.RLIM_INFINITY else 8192


def image_registry(name: str) -> str:
    """Return ``HOST[:PORT][/PREFIX]`` of an image registry, or an empty text. Raises ImproperlyConfigured."""
    value = os.environ.get(name, "").rstrip("/")
    if value and not _IMAGE_REGISTRY.fullmatch(value):
        raise ImproperlyConfigured(
            f"{name} is {value!r}. Write the registry's name without https://, with a port and a path where it has "
            "them, such as registry.example.org:5000/regatta."
        )
    return value


def etcd_address(name: str) -> str:
    """Return the address of an etcd, or an empty text. Raises ImproperlyConfigured for any other value."""
    url = os.environ.get(name, "")
    try:
        return EtcdAddress.parse(url).url if url else ""
    except CoordinationError as error:
        raise ImproperlyConfigured(f"{name} is wrong. {error}") from None


def gateway_address(name: str, etcd: str) -> str:
    """Return the address of the coordination gateway before ``etcd``, or an empty text. Raises ImproperlyConfigured."""
    url = etcd_address(name)
    if not url:
        return ""
    address = EtcdAddress.parse(url)
    if address.user or address.prefix:
        raise ImproperlyConfigured(
            f"{name} contains an account or a prefix. Write etcd://HOST:PORT; both follow from REGATTA_COORDINATION."
        )
    if not etcd or not EtcdAddress.parse(etcd).user:
        raise ImproperlyConfigured(
            f"{name} is set, but REGATTA_COORDINATION contains no account. The coordination gateway requires that each "
            "attempt has one: write REGATTA_COORDINATION=etcd://root:PASSWORD@HOST:2379."
        )
    return url


def bucket(name: str) -> dict[str, str] | None:
    """Return a bucket of an S3-compatible service, from ``s3://bucket/prefix``, with the service's address and region
    from REGATTA_S3_ENDPOINT and REGATTA_S3_REGION. None when the variable is empty or a directory. Raises
    ImproperlyConfigured."""
    value = os.environ.get(name, "")
    if "://" not in value:
        return None
    match = _BUCKET.fullmatch(value)
    if match is None:
        raise ImproperlyConfigured(f"{name} names no bucket; write s3://BUCKET or s3://BUCKET/PREFIX, or a directory.")
    endpoint = os.environ.get("REGATTA_S3_ENDPOINT", "")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise ImproperlyConfigured("REGATTA_S3_ENDPOINT is no address; write https://HOST or http://HOST:PORT.")
    region = os.environ.get("REGATTA_S3_REGION", "")
    return {"bucket": match["bucket"], "prefix": match["prefix"] or "", "endpoint": endpoint, "region": region}


# Of libpq, in seconds but for the last, in milliseconds. Its own are those of the kernel: a request would wait for
# minutes for a server whose node has died. The first is shorter than a probe of the cluster waits for an answer.
_POSTGRES_TIMEOUTS: Mapping[str, str] = {
    "connect_timeout": "3",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "12000",
}


_POOL_SIZES = range(8, 1001)


def pool_size(name: str, default: int) -> int:
    """Return the maximum of connections of a process to its database, or 0 for no pool. Raises
    ImproperlyConfigured."""
    value = integer(name, default)
    if value and value not in _POOL_SIZES:
        raise ImproperlyConfigured(
            f"{name} is {value}; write a number from {_POOL_SIZES[0]} to {_POOL_SIZES[-1]}, or 0 to open a connection "
            "for each request."
        )
    return value


def database(name: str, pool_size: int) -> dict[str, Any] | None:
    """Return Django's settings of a PostgreSQL database with a pool of connections, from
    ``postgresql://user:password@host:port/name?sslmode=require``.

    The options after the question mark are passed to the driver. None when the variable is empty. Raises
    ImproperlyConfigured.
    """
    url = os.environ.get(name, "")
    if not url:
        return None
    form = "write postgresql://USER:PASSWORD@HOST:PORT/NAME, or leave it empty for the embedded database."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ImproperlyConfigured(f"{name} cannot be read; {form}") from None
    database_name = unquote(parts.path.strip("/"))
    if parts.scheme not in ("postgresql", "postgres") or not database_name or "/" in database_name:
        raise ImproperlyConfigured(f"{name} names no PostgreSQL database; {form}")
    return {
        "ENGINE": "portal.common.postgresql",
        "POOL_SIZE": pool_size,
        "NAME": database_name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(port or ""),
        "OPTIONS": {**_POSTGRES_TIMEOUTS, **dict(parse_qsl(parts.query))},
    }


def redis_address(name: str, default: str) -> str:
    """Return the address of a Redis, or the default. Raises ImproperlyConfigured, with no part of the value: it may
    hold a password."""
    url = os.environ.get(name) or default
    if url == default:
        return url
    form = "write redis://:PASSWORD@HOST:PORT/NUMBER (with TLS rediss://), or leave it empty"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not _REDIS_DATABASE.fullmatch(parts.path):
        raise ImproperlyConfigured(
            f"{name} is no address of a Redis; {form}. Encode special characters of the password as in URLs, for "
            "example %40 for @."
        )
    return url


_MAIL_SCHEMES = {"smtp": ("EMAIL_USE_TLS", 587), "smtps": ("EMAIL_USE_SSL", 465), "smtp+plain": ("", 25)}


def mail_server(name: str) -> dict[str, Any]:
    """Return Django's settings of a mail server, from ``smtp://user:password@host:port``: STARTTLS; ``smtps`` is TLS
    from the beginning, ``smtp+plain`` no encryption. When the variable is empty, e-mails are written to standard
    output.

    Raises ImproperlyConfigured.
    """
    url = os.environ.get(name, "")
    if not url:
        return {"EMAIL_BACKEND": "django.core.mail.backends.console.EmailBackend"}
    form = "write smtp://USER:PASSWORD@HOST:PORT (or smtps://, smtp+plain://), or leave it empty."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ImproperlyConfigured(f"{name} cannot be read; {form}") from None
    if parts.scheme not in _MAIL_SCHEMES or not parts.hostname:
        raise ImproperlyConfigured(f"{name} names no mail server; {form}")
    security, usual_port = _MAIL_SCHEMES[parts.scheme]
    return {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": port or usual_port,
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        **({security: True} if security else {}),
    }


def json_object(name: str) -> dict[str, Any]:
    """Return a JSON object; empty when the variable is. Raises ImproperlyConfigured."""
    value = _json(name, "{}")
    if not isinstance(value, dict):
        raise ImproperlyConfigured(f"{name} is {str(value)[:40]!r}; write a JSON object.")
    return value


def json_list(name: str) -> list[Any]:
    """Return a JSON list; empty when the variable is. Raises ImproperlyConfigured."""
    value = _json(name, "[]")
    if not isinstance(value, list):
        raise ImproperlyConfigured(f"{name} is {str(value)[:40]!r}; write a JSON list.")
    return value


def _json(name: str, default: str) -> Any:
    try:
        return json.loads(os.environ.get(name, "").strip() or default)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is no JSON: {error}.") from None


def words(name: str, default: list[str]) -> list[str]:
    """Return a list from values separated by commas; blanks around a value are ignored."""
    raw = os.environ.get(name)
    if raw is None:
        return default
    return [item.strip() for item in raw.split(",") if item.strip()]


def networks(name: str, default: list[str]) -> tuple[Network, ...]:
    """Return addresses and networks (``10.0.0.0/8``), separated by commas. Raises ImproperlyConfigured."""
    found = []
    for item in words(name, default):
        try:
            found.append(network(item))
        except ValueError as error:
            raise ImproperlyConfigured(
                f"{name} names {item!r}, which is no address and no network ({error}). Write such as 10.0.0.7, "
                "10.0.0.0/8 or fd00::/8, separated by commas."
            ) from None
    return tuple(found)


def hosts(name: str, default: list[str], ingest_url: str) -> list[str]:
    """Return the host names of the portal, with the one that agents use. Raises ImproperlyConfigured.

    ``*`` is refused: links in e-mails begin with the requested host name, and then any caller could have the portal
    send links that lead elsewhere.
    """
    found = words(name, default)
    for item in found:
        if not _HOST_NAME.fullmatch(item):
            raise ImproperlyConfigured(
                f"{name} names {item!r}. Write host names or addresses without scheme and port, such as "
                "train.example.org, .example.org for all below it, or [::1], separated by commas."
            )
    try:
        inside = urlsplit(ingest_url).hostname
    except ValueError:
        inside = None
    if not inside:
        raise ImproperlyConfigured(f"REGATTA_INGEST_URL is {ingest_url!r}; write such as http://10.0.0.5:8000.")
    bare = f"[{inside}]" if ":" in inside else inside
    return found if bare in found else [*found, bare]


_NOTEBOOK_HOSTS = re.compile(r"\{id\}(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+")


def notebook_hosts(name: str, default: str) -> str:
    """Return the host names of notebooks, ``{id}.`` and a domain. Raises ImproperlyConfigured."""
    value = os.environ.get(name, default)
    if not _NOTEBOOK_HOSTS.fullmatch(value):
        raise ImproperlyConfigured(
            f"{name} is {value!r}. Write {{id}} and a domain in small letters, without scheme and port, such as "
            "{id}.notebooks.example.org: each notebook has a host name of its own below it."
        )
    return value


_LARGEST_ID = 2**32 - 2
_IDS = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")


def ids(name: str, default: str) -> range:
    """Return a range of user ids, as in ``2000000000-2000065535``, that belongs to no person or system account. Raises
    ImproperlyConfigured."""
    raw = os.environ.get(name, default)
    found = _IDS.fullmatch(raw.strip())
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 65536 <= first <= last <= _LARGEST_ID:
        raise ImproperlyConfigured(
            f"{name} is {raw!r}; write two numbers from 65536 to {_LARGEST_ID} such as {default}, of users that nobody "
            "else has."
        )
    return range(first, last + 1)


def choice(name: str, default: str, choices: tuple[str, ...]) -> str:
    """Return one of ``choices``. Raises ImproperlyConfigured for any other value."""
    value = os.environ.get(name, default)
    if value not in choices:
        raise ImproperlyConfigured(f"{name} is {value!r}; write one of {', '.join(choices)}.")
    return value


_UNITS = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_RATE = re.compile(r"([1-9][0-9]{0,8})/(s|sec|second|m|min|minute|h|hour|d|day)")


def rate(name: str, default: str) -> tuple[int, timedelta]:
    """Return a count and its period, as in ``20/min``. Raises ImproperlyConfigured."""
    raw = os.environ.get(name, default)
    found = _RATE.fullmatch(raw.strip())
    if found is None:
        raise ImproperlyConfigured(f"{name} is {raw!r}; write a number and a unit of time, such as 20/min.")
    return int(found[1]), _UNITS[found[2][0]]


def directory(name: str, default: Path) -> Path:
    """Return an absolute path. The directory is not made here: reading settings changes nothing."""
    return Path(os.environ.get(name) or default).expanduser().resolve()


def secret_key(path: Path) -> str:
    """Return the signing key: REGATTA_SECRET_KEY, else one in the data directory, made at the first start."""
    from_environment = os.environ.get("REGATTA_SECRET_KEY")
    if from_environment:
        return from_environment
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ImproperlyConfigured(_unusable(path.parent, error)) from None
    return _make_secret_key(path)


def _make_secret_key(path: Path) -> str:
    key = secrets.token_urlsafe(48)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ImproperlyConfigured(_unusable(path.parent, error)) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key)
    return key


def _unusable(directory: Path, error: OSError) -> str:
    what = f"The data directory {directory} cannot be used: {error.strerror}."
    return f"{what} Set REGATTA_DATA_DIR to a directory that you own."
