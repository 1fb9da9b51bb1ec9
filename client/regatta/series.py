"""One metric of a job, reduced by the portal to buckets, as lists, NumPy arrays or a pandas table."""

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
    """Five lists of equal length, one entry a bucket: the first x in it, the least, greatest and last value, and how
    many values it had. ``numpy.asarray(series)`` gives the last values."""

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
        """Arrays of float64 by the names of the lists. Raises NotInstalled."""
        numpy = package("numpy")
        return {name: numpy.asarray(getattr(self, name), dtype="f8") for name in COLUMNS}

    def to_pandas(self) -> pd.DataFrame:
        """A table with x as its index. Raises NotInstalled."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        return package("pandas").DataFrame(columns).set_index("x")


@dataclass(frozen=True)
class Chart:
    """Metrics by name. ``left_out``: names of further ones, which the answer has no room for."""

    series: dict[str, Series]
    left_out: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Chart:
        series = {name: Series.from_json(one) for name, one in body["series"].items()}
        return cls(series, tuple(body.get("left_out", ())))


COLUMNS = tuple(field.name for field in fields(Series))


def package(name: str) -> Any:
    """An optional package, imported when it is wanted. Raises NotInstalled."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise NotInstalled(f"This needs {name}, which is not installed here: pip install {name}") from None


def _number(value: float | int | str) -> Any:
    """JSON has no NaN and no infinity; the portal writes them as words."""
    return float(value) if isinstance(value, str) else value
