"""What data sets there are, for whom."""

from __future__ import annotations

import difflib
from pathlib import Path

from runtime.data.catalogue import DatasetInfo

from portal.common.errors import NotFound
from rbac.access import Actor
from runtime.data import catalogue as shipped

_ROOM = Path(__file__).resolve().parent
PUBLIC = "public"


def data_path() -> tuple[Path, ...]:
    """The directories that hold data sets by name: ``<directory>/public/digits`` is the data set ``public/digits``."""
    return (_ROOM,)


def catalogue(actor: Actor, namespace: str) -> list[DatasetInfo]:
    """The data sets that the actor may train on in the namespace, by name. For now these are the public ones."""
    del namespace
    return [shipped.find(name) for name in public_names()] if actor.is_active else []


def public_names() -> list[str]:
    """The names of the data sets that everybody may read, in order."""
    rooms = (root / PUBLIC for root in data_path())
    return sorted({f"{PUBLIC}/{entry.name}" for room in rooms for entry in room.glob("[a-z]*") if entry.is_dir()})


def find(name: str) -> DatasetInfo:
    """The data set of that name. Raises NotFound with the nearest names."""
    known = public_names()
    if name in known:
        return shipped.find(name)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known
    raise NotFound(f"There is no data set {name!r}. {_suggest(near)}")


def _suggest(names: list[str]) -> str:
    if not names:
        return "No data sets are installed."
    return f"Did you mean {' or '.join(names)}?"
