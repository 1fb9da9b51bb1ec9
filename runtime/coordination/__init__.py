"""Who is alive inside one attempt, and the state that survives its processes."""

from __future__ import annotations

from runtime.coordination.base import CoordinationError, CoordinationStore

_SQLITE = "sqlite:///"


def connect(url: str) -> CoordinationStore:
    """The store that ``url`` names: ``sqlite:///path``.

    The path is always absolute, since every replica has a working directory of its own; a fourth slash does not matter.
    Raises CoordinationError, with a sentence, for any other address and StoreUnavailable if the file cannot be opened.
    """
    if url.startswith(_SQLITE):
        # Here, so that reading the interface does not pay for sqlite3.
        from runtime.coordination.embedded import EmbeddedStore

        return EmbeddedStore("/" + url.removeprefix(_SQLITE).lstrip("/"))
    if url.startswith("etcd://"):
        raise CoordinationError(
            "This build has the embedded coordination store only. Use an address like sqlite:///path/to/file."
        )
    raise CoordinationError(f"{url!r} is no address of a coordination store. Use one like sqlite:///path/to/file.")
