"""One metric of a job, reduced to buckets by the portal, as lists, NumPy arrays or a pandas table."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from regatta.errors import NotInstalled

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Series:
    """Five lists of equal length with one entry per bucket.

    They are the first x of the bucket, its minimum, maximum and last value, and its number of values.
    ``numpy.asarray(series)`` returns the last values.
    """

    x: list[float]
    min: list[float]
    max: list[float]
    last: list[float]
    count: list[int]

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Series:
        return cls(*([_number(value) for value in body[name]] for name in COLUMNS))

    def __len__(self) -> int:
        return len(self.x)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return package("numpy").asarray(self.last, dtype=dtype or "f8")  # type: ignore[no-any-return]

    def to_numpy(self) -> dict[str, NDArray[np.float64]]:
        """Return arrays of float64 by the names of the lists. Raises NotInstalled."""
        numpy = package("numpy")
        return {name: numpy.asarray(getattr(self, name), dtype="f8") for name in COLUMNS}

    def to_pandas(self) -> pd.DataFrame:
        """Return a table with x as its index. Raises NotInstalled."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        return package("pandas").DataFrame(columns).set_index("x")


@dataclass(frozen=True)
class Chart:
    """Metrics by name. ``left_out``: names of further metrics that do not fit into the response."""

    series: dict[str, Series]
    left_out: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Chart:
        series = {name: Series.from_json(one) for name, one in body["series"].items()}
        return cls(series, tuple(body.get("left_out", ())))


COLUMNS = tuple(field.name for field in fields(Series))


def package(name: str) -> Any:
    """Import an optional package. Raises NotInstalled."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise NotInstalled(f"This needs {name}, which is not installed here: pip install {name}") from None


def _number(value: float | int | str) -> Any:
    """Convert a value from JSON, which has no NaN and no infinity: the portal sends them as strings."""
    return float(value) if isinstance(value, str) else value
