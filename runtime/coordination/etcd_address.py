"""Address of an etcd: ``etcd://[user:password@]host[:port][,host...][/prefix][?ca=file]``. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, quote, unquote, urlencode

from runtime.coordination.base import CoordinationError
from runtime.messages import paragraph
from runtime.messages import training as messages

SCHEME = "etcd://"
DEFAULT_PORT = 2379
_EVERYTHING = {"key": b"\0", "range_end": b"\0"}


@dataclass(frozen=True)
class EtcdAddress:
    """Parsed address of an etcd.

    ``servers`` belong to one cluster, as ``host:port``. ``prefix`` precedes every key; it begins with a slash or is
    empty. ``ca`` is a file of certificates, PEM: with it the connections use TLS, and a server's certificate must be
    signed by one of them.
    """

    servers: tuple[str, ...]
    prefix: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""

    @classmethod
    def parse(cls, url: str) -> EtcdAddress:
        """Parse an address. Raises CoordinationError with a message, which never shows the password."""
        if not url.startswith(SCHEME):
            raise _unreadable("it does not begin with etcd://")
        rest, _, query = url.removeprefix(SCHEME).partition("?")
        authority, slash, path = rest.partition("/")
        account, at, hosts = authority.rpartition("@")
        user, _, password = account.partition(":")
        if at and not (user and password):
            raise _unreadable("there is an @, and no user:password before it")
        prefix = (slash + unquote(path)).rstrip("/")
        servers = tuple(_server(host) for host in hosts.split(","))
        return cls(servers, prefix, unquote(user), unquote(password), **_options(query))

    @property
    def url(self) -> str:
        """The address as text, password included."""
        account = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.user else ""
        query = f"?{urlencode({'ca': self.ca})}" if self.ca else ""
        return f"{SCHEME}{account}{','.join(self.servers)}{quote(self.prefix)}{query}"

    def key(self, key: str) -> bytes:
        """Return a key of ours as etcd stores it."""
        return f"{self.prefix}{key}".encode()

    def span(self, prefix: str) -> dict[str, bytes]:
        """Return the range of the keys that begin with ``prefix``, as fields of a request to etcd."""
        begin = self.key(prefix)
        # The last byte of UTF-8 is never 255. Two zeros select all keys.
        return {"key": begin, "range_end": begin[:-1] + bytes([begin[-1] + 1])} if begin else _EVERYTHING

    def with_account(self, user: str, password: str) -> EtcdAddress:
        return replace(self, user=user, password=password)


def _server(host: str) -> str:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, str(DEFAULT_PORT)
    if not name or not port.isdecimal() or not 0 < int(port) < 65536:
        raise _unreadable(f"{host!r} is no host or host:port")
    return f"{name}:{port}"


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - {"ca"})
    if unknown:
        raise _unreadable(f"it knows no option {unknown[0]!r}, only ca")
    return options


def _unreadable(why: str) -> CoordinationError:
    return CoordinationError(paragraph(messages.ETCD_ADDRESS_INVALID(why=why), messages.ETCD_ADDRESS_FORM()))
