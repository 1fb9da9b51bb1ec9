from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from portal.preflight import CannotStart, check_redis, listen, listen_all, lock_data_directory
from tests.ports import free_port
from tests.servers.redis_server import RedisServer


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


@pytest.mark.redis
def test_a_redis_that_answers_is_no_problem(redis: RedisServer) -> None:
    assert check_redis({"REGATTA_REDIS_URL": redis.url(), "REGATTA_BROKER_URL": "filesystem://"}) == []


@pytest.mark.redis
@pytest.mark.parametrize("url", ["redis://:an-old-one@127.0.0.1:{port}/1", "redis://127.0.0.1:{port}/1"])
def test_a_password_that_redis_refuses_names_the_setting_and_not_the_password(redis: RedisServer, url: str) -> None:
    with pytest.raises(CannotStart, match=r"refuses REGATTA_REDIS_URL.*password") as refused:
        check_redis({"REGATTA_BROKER_URL": redis.url(), "REGATTA_REDIS_URL": url.format(port=redis.port)})
    assert "an-old-one" not in str(refused.value)


@pytest.mark.redis
def test_a_number_that_redis_does_not_have_is_reported(redis: RedisServer) -> None:
    with pytest.raises(CannotStart, match="refuses REGATTA_REDIS_URL"):
        check_redis({"REGATTA_REDIS_URL": redis.url(database=9999)})


def test_a_redis_that_does_not_answer_is_a_line_and_no_reason_not_to_start() -> None:
    port = free_port()
    (line,) = check_redis({"REGATTA_REDIS_URL": f"redis://:secret@127.0.0.1:{port}/1"})
    assert f"127.0.0.1:{port} (REGATTA_REDIS_URL) does not answer" in line
    assert "secret" not in line


@pytest.mark.redis
def test_a_redis_that_accepts_and_never_answers_is_a_line(fragile_redis: RedisServer) -> None:
    fragile_redis.freeze()
    assert len(check_redis({"REGATTA_REDIS_URL": fragile_redis.url()})) == 1


def test_agents_get_a_socket_of_their_own() -> None:
    port, agent_port = free_port(), free_port()
    with contextlib.ExitStack() as closing:
        sockets = [closing.enter_context(each) for each in listen_all("127.0.0.1", port, agent_port)]
        assert [each.getsockname()[1] for each in sockets] == [port, agent_port]


def test_without_a_port_for_agents_there_is_one_socket() -> None:
    (only,) = listen_all("127.0.0.1", free_port(), 0)
    only.close()


def test_the_port_for_agents_in_use_is_reported_by_its_setting_and_the_other_is_free_again() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(CannotStart, match=f"REGATTA_AGENT_PORT={taken.getsockname()[1] + 1}"):
            listen_all("127.0.0.1", port, taken.getsockname()[1])
        listen("127.0.0.1", port).close()
