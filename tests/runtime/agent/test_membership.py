"""Registration of a replica, and its loss."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime import contract
from runtime.agent import settings
from runtime.agent.membership import Membership
from runtime.coordination.base import LeaseLost
from runtime.coordination.embedded import EmbeddedStore
from runtime.messages import training as messages
from tests.waiting import until

KEY = contract.member_key("j", 1, contract.PSERVER, 0)


class Registered:
    def __init__(self, directory: Path) -> None:
        environment = {
            contract.JOB_ID: "j",
            contract.ATTEMPT_ID: "a",
            contract.ROLE: contract.PSERVER,
            contract.INDEX: "0",
            contract.REPLICA_DIR: str(directory),
            contract.INGEST_URL: "",
            contract.INGEST_TOKEN: "",
            contract.COORDINATION: f"sqlite:///{directory}/store.db",
        }
        self.store = EmbeddedStore(directory / "store.db")
        self.registered, self.lost = threading.Event(), threading.Event()
        self.reasons: list[str] = []
        self.membership = Membership(settings.read(environment), lambda *_: None, self._on_registered, self._on_lost)
        self.membership.start()

    def _on_registered(self, incarnation: int) -> None:
        self.registered.set()

    def _on_lost(self, why: str) -> None:
        self.reasons.append(why)
        self.lost.set()


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Registered]:
    one = Registered(tmp_path)
    yield one
    one.membership.leave()
    one.store.close()


def test_a_removed_registration_is_lost_though_the_lease_is_alive(replica):
    replica.membership.register("127.0.0.1:1", "1.2")
    assert replica.registered.wait(10)
    assert json.loads(replica.store.get(KEY).value)["release"] == "1.2"
    replica.store.delete(KEY)
    assert replica.lost.wait(10)
    assert replica.reasons[0] == messages.REGISTRATION_REMOVED()


def test_leaving_does_not_count_as_losing_the_lease(replica):
    replica.membership.register("127.0.0.1:1")
    assert replica.registered.wait(10)
    replica.membership.leave()
    until("its place is free", lambda: not replica.store.get(KEY), 10)
    assert not replica.lost.is_set()


def test_a_lease_that_runs_out_before_it_holds_anything_is_replaced(replica, monkeypatch):
    plain, failing = EmbeddedStore.put, [LeaseLost("The lease is gone.")]

    def put(self, *arguments, **options):
        if failing:
            raise failing.pop()
        return plain(self, *arguments, **options)

    monkeypatch.setattr(EmbeddedStore, "put", put)
    replica.membership.register("127.0.0.1:1")
    assert replica.registered.wait(10)
    assert replica.reasons == []


def test_a_watch_that_fails_for_lack_of_threads_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.agent.membership.RETRY_SECONDS", 0.01)
    begin, failures = EmbeddedStore.watch, [RuntimeError("can't start new thread"), MemoryError()]

    def watch(store: EmbeddedStore, *arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return begin(store, *arguments)

    monkeypatch.setattr(EmbeddedStore, "watch", watch)
    one = Registered(tmp_path)
    until("the members are watched", lambda: one.membership._watch)
    one.membership.leave()
    one.store.close()


def test_a_registration_that_fails_for_lack_of_threads_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.agent.membership.RETRY_SECONDS", 0.01)
    grant, failures = EmbeddedStore.grant, [RuntimeError("can't start new thread")]

    def short(store: EmbeddedStore, *arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return grant(store, *arguments)

    monkeypatch.setattr(EmbeddedStore, "grant", short)
    one = Registered(tmp_path)
    one.membership.register("127.0.0.1:1")
    assert one.registered.wait(10)
    one.membership.leave()
    one.store.close()
