"""Coordination of one attempt: its live processes, and the state that outlasts them."""

from __future__ import annotations

from runtime.coordination.base import CoordinationError, CoordinationStore
from runtime.messages import training as messages

_SQLITE = "sqlite:///"
_ETCD = "etcd://"


def connect(url: str) -> CoordinationStore:
    """Return the store at ``url``: ``sqlite:///path`` or ``etcd://[user:password@]host:port[,...][/prefix][?ca=file]``.

    The path is always absolute, because every replica has a working directory of its own; a fourth slash has no effect.
    Raises CoordinationError, with a message, for any other address and StoreUnavailable if the file cannot be opened.
    This call sends nothing to etcd: the first request shows whether it answers.
    """
    # Imported on use: the embedded store needs no gRPC, and etcd needs no sqlite3.
    if url.startswith(_SQLITE):
        from runtime.coordination.embedded import EmbeddedStore

        return EmbeddedStore("/" + url.removeprefix(_SQLITE).lstrip("/"))
    if url.startswith(_ETCD):
        from runtime.coordination.etcd import EtcdStore
        from runtime.coordination.etcd_address import EtcdAddress

        return EtcdStore(EtcdAddress.parse(url))
    raise CoordinationError(messages.STORE_ADDRESS_INVALID(address=f"{url!r}"))
