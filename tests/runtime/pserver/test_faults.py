"""The process of a parameter server when the store or the machine fails for a moment."""

from __future__ import annotations

import errno
import importlib
import os
from pathlib import Path
from typing import Any, cast

import pytest

from runtime import contract
from runtime.agent_channel import Channel
from runtime.coordination.base import AccessDenied, CoordinationError, StoreUnavailable
from runtime.coordination.embedded import EmbeddedStore
from runtime.pserver import __main__ as process

MARK = contract.values_key("local", 1, 0)


class FailsToPut(EmbeddedStore):
    """A store whose first ``put`` calls fail."""

    def __init__(self, path: Path, error: CoordinationError, times: int) -> None:
        super().__init__(path)
        self.error, self.left = error, times

    def put(self, *arguments: Any, **options: Any) -> Any:
        if self.left:
            self.left -= 1
            raise self.error
        return super().put(*arguments, **options)


@pytest.mark.parametrize("error", [StoreUnavailable("away"), AccessDenied("not yet")], ids=repr)
def test_that_there_are_values_is_noted_as_soon_as_the_store_takes_it(
    tmp_path: Path, error: CoordinationError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "NOTE_SECONDS", 0.0)
    store = FailsToPut(tmp_path / "store.db", error, times=3)
    server = process._Process(contract.read({contract.WIRE_SECRET: "s"}), cast(Channel, None), store)
    polls = []

    def look(seconds: float) -> bool:
        polls.append(store.get(MARK) is not None)
        return polls[-1]

    monkeypatch.setattr(server._ended, "wait", look)
    server._has_values(None)
    server._wait()
    assert polls == [False, False, False, True]


def shortage() -> OSError:
    return OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("error", [shortage(), RuntimeError("can't start new thread"), MemoryError()], ids=repr)
@pytest.mark.parametrize("role", ["pserver", "master"])
def test_a_process_on_a_machine_that_is_short_of_something_is_started_again(
    role: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"runtime.{role}.__main__")

    class Broken:
        def __init__(self, *_: object) -> None:
            raise error

    monkeypatch.setattr(module, "_Process", Broken)
    monkeypatch.setattr(module.Channel, "from_environment", lambda: Closes())
    monkeypatch.setattr(module.coordination, "connect", lambda address: None)
    assert module.main() == contract.EXIT_RESTART


class Closes:
    """A channel that is only closed."""

    def close(self) -> None:
        """Nothing is open."""
