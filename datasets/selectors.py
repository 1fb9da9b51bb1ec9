"""What data sets there are, for whom."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from portal.common.errors import NotFound
from rbac.access import Actor
from runtime.data import catalogue as shipped
from runtime.data.catalogue import DatasetInfo, UnknownDataset

PUBLIC = "public/"
_ROOM = Path(__file__).resolve().parent


def data_path() -> tuple[Path, ...]:
    """The directories that hold data sets by name: ``<directory>/public/digits`` is the data set ``public/digits``."""
    return (_ROOM,)


def catalogue(actor: Actor, namespace: str) -> list[DatasetInfo]:
    """The data sets that the actor may train on in the namespace, by name. For now these are the public ones."""
    del namespace
    return public() if actor.is_active else []


def public() -> list[DatasetInfo]:
    """The data sets that everybody may read, by name."""
    return [find(name) for name in shipped.names(data_path()) if name.startswith(PUBLIC)]


def find(name: str) -> DatasetInfo:
    """The data set of that name. Raises NotFound with the nearest names."""
    try:
        return shipped.find(name, data_path())
    except UnknownDataset as error:
        raise NotFound(str(error)) from None


def preview(info: DatasetInfo, split: str, count: int) -> list[dict[str, Any]]:
    """The first records of a split: ``{"features": nested lists, "label": number}``. Reads no more than it gives."""
    records = (record for chunk in shipped.chunks(info, split) for record in shipped.read_chunk(chunk))
    return [{"features": features.tolist(), "label": label} for features, label in islice(records, count)]
