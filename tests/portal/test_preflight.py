from __future__ import annotations

import socket
from pathlib import Path

import pytest

from portal.preflight import CannotStart, listen, lock_data_directory


def test_the_data_directory_is_made_and_held(tmp_path: Path) -> None:
    with lock_data_directory(tmp_path / "new" / "data"), pytest.raises(CannotStart, match="already runs"):
        lock_data_directory(tmp_path / "new" / "data")


def test_it_is_free_again_after_the_portal_has_ended(tmp_path: Path) -> None:
    lock_data_directory(tmp_path).close()
    lock_data_directory(tmp_path).close()


def test_a_file_in_place_of_the_directory_is_reported_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(CannotStart, match="Set REGATTA_DATA_DIR"):
        lock_data_directory(tmp_path / "data")


def test_a_port_in_use_is_reported_with_another_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=f"Port {port} on 127.0.0.1 is in use.*PORT={port + 1}"):
            listen("127.0.0.1", port)


def test_an_address_of_another_machine_is_reported() -> None:
    with pytest.raises(CannotStart, match="REGATTA_HOST"):
        listen("192.0.2.1", 0)
