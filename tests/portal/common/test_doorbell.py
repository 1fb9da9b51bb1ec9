"""The doorbell on datagram sockets."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import override_settings

from portal.common import doorbell
from portal.common.doorbell import Doorbell, run_directory
from tests.contracts.doorbell_contract import DoorbellContract, run

_RINGER = """
import sys
import django
django.setup()
from portal.common.doorbell import ring
for topic in sys.argv[1:]:
    ring(topic)
"""


@pytest.mark.django_db(transaction=True)
class TestSocketDoorbell(DoorbellContract):
    def elsewhere(self, *topics: str) -> None:
        subprocess.run([sys.executable, "-c", _RINGER, *topics], check=True, timeout=30)


@pytest.mark.django_db(transaction=True)
def test_two_listeners_are_both_woken() -> None:
    async def scenario(one: Doorbell) -> None:
        two = Doorbell()
        try:
            with one.subscribe("logs:1") as first, two.subscribe("logs:1") as second:
                doorbell._ring_now("logs:1")
                assert await first.wait(60)
                assert await second.wait(60)
        finally:
            two.close()

    run(scenario)


def test_the_socket_of_a_dead_listener_is_removed() -> None:
    path = run_directory() / "1-dead.bell"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
    doorbell._ring_now("logs:1")
    assert not path.exists()


def test_the_socket_is_for_its_owner_alone() -> None:
    async def scenario(bell: Doorbell) -> None:
        (path,) = run_directory().glob("*.bell")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    run(scenario)


def test_a_long_data_directory_gets_a_short_path_elsewhere(tmp_path: Path) -> None:
    with override_settings(DATA_DIR=tmp_path / ("long" * 30)):
        directory = run_directory()
        try:
            assert len(str(directory)) < 70
        finally:
            directory.rmdir()


def test_a_directory_that_cannot_be_written_does_not_fail_the_ringer(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file, no directory")
    with override_settings(DATA_DIR=tmp_path):
        doorbell._ring_now("logs:1")
