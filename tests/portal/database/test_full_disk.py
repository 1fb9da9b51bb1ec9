"""Full disks: a PostgreSQL and a data directory on a small file system that is filled and then has space again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from portal.common.messages import requests as messages
from portal.common.outages import RETRY_SECONDS
from runtime.agent.delivery import ingest_client as agent
from tests.messages import mentions
from tests.portal.database.running_web import Web, running_web
from tests.small_disk import filled, only_root, small_disk
from tests.waiting import until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.timeout(300),
    only_root,
]
# Lines of one request; they hardly compress.
_LINES = 400


@pytest.fixture(scope="module")
def disk() -> Iterator[Path]:
    # The account of the server may not enter the directories of pytest.
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        with small_disk(Path(name), 160) as path:
            yield path


@pytest.fixture(scope="module")
def web(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running_web(tmp_path_factory.mktemp("full-disk"), disk=disk) as found:
        yield found


def lines(first: int) -> dict[str, Any]:
    texts = [[1e9, "stdout", f"{first + number} {os.urandom(600).hex()}"] for number in range(_LINES)]
    return {"replica": "trainer-0", "first": first, "lines": texts}


def send_until_refused(web: Web) -> tuple[int, httpx.Response]:
    """Send batches of an agent until one is not taken; return its first number and the answer."""
    for first in range(1, 200 * _LINES, _LINES):
        answer = web.ingest("logs", lines(first))
        if answer.status_code != httpx.codes.OK:
            return first, answer
    raise AssertionError("the disk takes everything")


@pytest.mark.invariant("While PostgreSQL's disk is full, writes get a 503, reads go on, and agents lose no line.")
def test_writes_are_refused_until_there_is_space_and_no_line_is_lost(web: Web, disk: Path) -> None:
    with filled(disk):
        first, refused = send_until_refused(web)
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert float(refused.headers["Retry-After"]) == RETRY_SECONDS
        assert mentions(refused.json()["detail"], messages.DATABASE_FULL)
        assert isinstance(agent.meaning(refused.status_code, refused.content), agent.Failed)
        page = web.page("/n/team/jobs")
        assert page.status_code == 200
        stored = web.api("GET", f"/api/v1/jobs/{web.rows['job']}/logs?limit=1")
        assert stored.status_code == 200
    until("a batch is taken again", lambda: web.ingest("logs", lines(first)).status_code == 200, 60)
    with psycopg.connect(web.server.url) as connection:
        row = connection.execute("SELECT sum(hi - lo + 1), max(hi) FROM jobs_block WHERE kind = 'logs'").fetchone()
    assert row == (first + _LINES - 1, first + _LINES - 1)
