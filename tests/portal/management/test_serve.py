"""``manage.py serve`` as a process, with a port of its own for agents."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest

from tests.portal.database.running_web import running
from tests.ports import free_port
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
INGEST = "/ingest/v1/attempts/00000000-0000-4000-8000-000000000000/heartbeat"
PEOPLE, AGENTS = "PORT", "REGATTA_AGENT_PORT"


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Run it behind a proxy for HTTPS; return its ports."""
    data = tmp_path_factory.mktemp("serve")
    found = {PEOPLE: free_port(), AGENTS: free_port()}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))}
    ours = {"DJANGO_SETTINGS_MODULE": "portal.settings", "REGATTA_DATA_DIR": str(data), "REGATTA_HTTPS": "1"}
    environment = {**inherited, **ours, **{name: str(port) for name, port in found.items()}}
    with running(environment, "serve", data / "serve.log") as log:
        until("it listens", lambda: listens(found[PEOPLE]), 120, story=log.read_text)
        yield found


def listens(port: int) -> bool:
    try:
        return status("GET", port, "/healthz") == httpx.codes.OK
    except httpx.TransportError:
        return False


def status(method: str, port: int, path: str) -> int:
    return httpx.request(method, f"http://127.0.0.1:{port}{path}", timeout=60).status_code


@pytest.mark.parametrize(
    ("port", "path", "expected"),
    [
        (PEOPLE, "/healthz", 200),
        (PEOPLE, "/sign-in", 301),
        (PEOPLE, INGEST, 404),
        (AGENTS, INGEST, 401),
        (AGENTS, "/healthz", 404),
        (AGENTS, "/sign-in", 404),
    ],
)
def test_one_process_serves_people_and_agents_on_two_ports(
    ports: dict[str, int], port: str, path: str, expected: int
) -> None:
    assert status("POST" if path == INGEST else "GET", ports[port], path) == expected
