"""Who is alive inside one attempt, and the state that survives its processes."""

from __future__ import annotations

from runtime.coordination.base import CoordinationError, CoordinationStore

_SQLITE = "sqlite:///"
_ETCD = "etcd://"


def connect(url: str) -> CoordinationStore:
    """The store that ``url`` names: ``sqlite:///path`` or
    ``etcd://[user:password@]host:port[,...][/prefix][?ca=file]``.

    The path is always absolute, since every replica has a working directory of its own; a fourth slash does not matter.
    Raises CoordinationError, with a message, for any other address and StoreUnavailable if the file cannot be opened.
    etcd is not asked yet: whether it answers is told by the first call.
    """
    # Each is imported where it is wanted: the one needs no gRPC, the other no sqlite3.
    if url.startswith(_SQLITE):
        from runtime.coordination.embedded import EmbeddedStore

        return EmbeddedStore("/" + url.removeprefix(_SQLITE).lstrip("/"))
    if url.startswith(_ETCD):
        from runtime.coordination.etcd import EtcdStore
        from runtime.coordination.etcd_address import EtcdAddress

        return EtcdStore(EtcdAddress.parse(url))
    raise CoordinationError(
        f"{url!r} is no address of a coordination store. Use one like sqlite:///path/to/file or etcd://host:2379."
    )
