"""The portal's connection to agents: real agents of the local backend."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.backends.base import AttemptRef
from jobs.backends.local.backend import LocalBackend
from jobs.control import keys
from jobs.control.connection import connect, connect_async
from jobs.control.errors import AgentTooOld, NotRunning, Refused, Unreachable
from runtime import contract
from runtime.contract import ReplicaState
from tests.contracts.backend_contract import NO_GRACE, all_exited, all_running, make_plan, wait_until
from tests.runtime.agent.ingest_server import IngestServer

pytestmark = pytest.mark.processes


@pytest.fixture
def backend(tmp_path: Path, settings: Any) -> Iterator[LocalBackend]:
    settings.ATTEMPTS_DIR = tmp_path / "attempts"
    settings.CLUSTER_BACKEND = "local"
    yield LocalBackend(tmp_path / "attempts")
    for state in (tmp_path / "attempts").glob("*/*/state.json"):
        known = ReplicaState.load(state.parent)
        if known and contract.is_locked(state.parent):
            os.kill(known.pid, signal.SIGKILL)


def launched(backend: LocalBackend, tmp_path: Path, key: str) -> AttemptRef:
    """Launch two trainers whose agents hold the key, and return their attempt."""
    portal = IngestServer()
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "train.py").write_text("import time; time.sleep(600)")
    environment = {contract.INGEST_URL: portal.url, contract.SANDBOX: "none"}
    plan = replace(make_plan(tmp_path / "bundle", environment), control_key=key)
    backend.launch(plan)
    wait_until(backend, plan.ref, all_running)
    return plan.ref


def test_a_call_reaches_the_replica_that_it_names(backend: LocalBackend, tmp_path: Path) -> None:
    ref = launched(backend, tmp_path, keys.current("attempt"))
    for name in ("trainer-0", "trainer-1"):
        with connect(ref, name) as agent:
            assert agent.call("ping")["replica"] == name
    with connect(ref, "trainer-0") as agent, pytest.raises(Refused) as refused:
        agent.call("missing")
    assert refused.value.code == "unknown_call"

    async def asynchronous() -> Any:
        connection = await connect_async(ref, "trainer-1")
        try:
            return await connection.call("ping")
        finally:
            await connection.close()

    assert asyncio.run(asynchronous())["replica"] == "trainer-1"
    backend.stop(ref, NO_GRACE)
    wait_until(backend, ref, all_exited)
    with pytest.raises(NotRunning, match="trainer-0 is not running"):
        connect(ref, "trainer-0")


def test_a_rotated_secret_key_does_not_cut_off_running_jobs(
    backend: LocalBackend, tmp_path: Path, settings: Any
) -> None:
    ref = launched(backend, tmp_path, keys.current("attempt"))
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "fresh" * 10
    with connect(ref, "trainer-0") as agent:
        assert agent.call("ping")["replica"] == "trainer-0"
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(Unreachable, match="its key is not derived"):
        connect(ref, "trainer-0")


def test_an_agent_of_an_earlier_release_is_named_as_such(backend: LocalBackend, tmp_path: Path) -> None:
    with pytest.raises(AgentTooOld, match="trainer-0 was started without a control socket"):
        connect(launched(backend, tmp_path, ""), "trainer-0")


def test_keys_of_two_attempts_and_of_two_secret_keys_differ(settings: Any) -> None:
    first = keys.current("one")
    other = keys.current("two")
    settings.SECRET_KEY = "fresh" * 10
    assert len({first, other, keys.current("one")}) == 3
