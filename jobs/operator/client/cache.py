"""Cache of the cluster's objects by kind and name, with an index by their owner's UID.

Responses to the controller's own writes are stored at once, so a pass never reads a state from before its own last
write. The version of an object decides which of two is newer. A deleted object never comes back.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from jobs.operator.client.transform import trimmed
from jobs.operator.model import names
from jobs.operator.model.names import Object

Key = tuple[str, str]  # namespace, name
Item = dict[str, Any]
_DELETED_LIMIT = 20_000


class Cache:
    """Thread-safe cache of objects.

    ``changed`` is called with kind and object after a change, in the thread that made the change. ``trim`` reduces an
    object to the parts to store: its metadata, and the fields that readers need.
    """

    def __init__(
        self,
        changed: Callable[[str, Object], None] = lambda kind, item: None,
        trim: Callable[[str, Object], Item] = trimmed,
    ) -> None:
        self.changed = changed
        self.trim = trim
        self._lock = threading.Lock()
        self._items: dict[str, dict[Key, Item]] = defaultdict(dict)
        self._owned: dict[str, dict[tuple[str, Key], Item]] = defaultdict(dict)  # by the owner's UID
        self._deleted: set[str] = set()
        self._deleted_order: deque[str] = deque()

    # Reading
    def get(self, kind: str, namespace: str, name: str) -> Item | None:
        with self._lock:
            return self._items[kind].get((namespace, name))

    def all(self, kind: str) -> list[Item]:
        with self._lock:
            return list(self._items[kind].values())

    def owned(self, uid: str) -> list[Item]:
        """Return the objects owned by the PaddleJob with this UID, in the order of kinds and names."""
        with self._lock:
            return [item for _, item in sorted(self._owned.get(uid, {}).items())]

    def count(self, kind: str) -> int:
        with self._lock:
            return len(self._items[kind])

    # Writing
    def put(self, kind: str, item: Object) -> None:
        """Store an object, unless the cache has a newer version of it."""
        stored = self.trim(kind, item)
        with self._lock:
            if not self._put(kind, stored):
                return
        self.changed(kind, stored)

    def remove(self, kind: str, item: Object) -> None:
        """Remove a deleted object; another one with its name may already be stored, and stays."""
        with self._lock:
            self._forget(names.uid_of(item))
            found = self._items[kind].get(_key(item))
            if found is None or names.uid_of(found) != names.uid_of(item):
                return
            self._drop(kind, found)
        self.changed(kind, item)

    def replace(self, kind: str, items: Iterable[Item], version: str) -> None:
        """Replace all objects of a kind by ``items``, which are trimmed and were listed at ``version``."""
        listed = {_key(item): item for item in items}
        with self._lock:
            missing = [
                item for key, item in self._items[kind].items() if key not in listed and not _is_newer(item, version)
            ]
            for item in missing:
                self._forget(names.uid_of(item))
                self._drop(kind, item)
            changed = missing + [item for item in listed.values() if self._put(kind, item)]
        for item in changed:
            self.changed(kind, item)

    # With the lock held
    def _put(self, kind: str, item: Item) -> bool:
        known = self._items[kind].get(_key(item))
        if names.uid_of(item) in self._deleted:
            return False
        if known is not None and names.uid_of(known) == names.uid_of(item) and not _is_newer(item, _version(known)):
            return False
        if known is not None:
            self._drop(kind, known)
        self._items[kind][_key(item)] = item
        owner = owner_uid(item)
        if owner:
            self._owned[owner][kind, _key(item)] = item
        return True

    def _drop(self, kind: str, item: Item) -> None:
        del self._items[kind][_key(item)]
        owned = self._owned.get(owner_uid(item), {})
        owned.pop((kind, _key(item)), None)
        if not owned:
            self._owned.pop(owner_uid(item), None)

    def _forget(self, uid: str) -> None:
        if uid in self._deleted:
            return
        self._deleted.add(uid)
        self._deleted_order.append(uid)
        if len(self._deleted_order) > _DELETED_LIMIT:
            self._deleted.discard(self._deleted_order.popleft())


def owner_uid(item: Object) -> str:
    """Return the UID of the PaddleJob that controls an object; empty if there is none."""
    for owner in item["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == names.KIND:
            return str(owner["uid"])
    return ""


def owner_name(item: Object) -> str:
    """Return the name of the PaddleJob that controls an object; empty if there is none."""
    for owner in item["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == names.KIND:
            return str(owner["name"])
    return ""


def _key(item: Object) -> Key:
    return str(item["metadata"].get("namespace", "")), names.name_of(item)


def _version(item: Object) -> str:
    return str(item["metadata"].get("resourceVersion", ""))


def _is_newer(item: Object, version: str) -> bool:
    """Whether an object is newer than ``version``. Without numeric versions, any different version counts as newer."""
    own = _version(item)
    return int(own) > int(version) if own.isdecimal() and version.isdecimal() else own != version
