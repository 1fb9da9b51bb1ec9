"""The parameters of a job as its program reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from runtime.errors import UsageError
from runtime.messages import training as messages


class Config(Mapping[str, bool | int | float | str]):
    """A mapping that cannot be changed. ``config.get("lr", 0.1)`` has a default for a script that runs alone."""

    def __init__(self, given: Mapping[str, bool | int | float | str]) -> None:
        self._given = dict(given)

    def __getitem__(self, name: str) -> bool | int | float | str:
        """Raises UsageError, which is a KeyError too, for a parameter that the job does not have."""
        try:
            return self._given[name]
        except KeyError:
            known = ", ".join(sorted(self._given)) or "none"
            raise ParameterMissing(messages.PARAMETER_MISSING(name=name, names=known)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __repr__(self) -> str:
        return f"Config({self._given!r})"


class ParameterMissing(UsageError, KeyError):
    """The job does not have the parameter."""

    def __str__(self) -> str:
        return str(self.args[0])
