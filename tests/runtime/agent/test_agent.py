"""Whole agents with whole processes against a real ingest."""

from __future__ import annotations

import pytest

from tests.runtime.agent.conftest import Replica
from tests.runtime.agent.ingest_server import IngestServer

pytestmark = pytest.mark.processes


def test_what_is_printed_arrives_line_by_line_and_the_end_is_reported(replica: Replica, portal: IngestServer) -> None:
    report = replica.run("import sys\nprint('one')\nprint('two')\nprint('three', file=sys.stderr)")
    assert portal.texts("stdout") == ["one", "two"]
    assert portal.texts("stderr") == ["three"]
    assert report == {
        "replica": "trainer-0", "phase": "exited", "code": 0, "signal": None, "out_of_memory": False, "why": "",
    }  # fmt: skip
