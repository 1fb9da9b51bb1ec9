"""Variables with the peers of the processes of each framework, by test vectors."""

from __future__ import annotations

from jobs.frameworks.paddle import Endpoint
from jobs.frameworks.peer_env import environments

HOST = "127.0.0.1"
FLEET = {
    ("pserver", 0): Endpoint(HOST, 20000),
    ("pserver", 1): Endpoint(HOST, 20020),
    ("trainer", 0): Endpoint(HOST, 20040),
    ("trainer", 1): Endpoint(HOST, 20060),
}
WORKERS = {("trainer", 0): Endpoint("10.0.0.1", 36000), ("trainer", 1): Endpoint("10.0.0.2", 36000)}


def test_a_fleet() -> None:
    everybody = {
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:20000,127.0.0.1:20020",
        "PADDLE_TRAINER_ENDPOINTS": "127.0.0.1:20040,127.0.0.1:20060",
        "PADDLE_TRAINERS": "127.0.0.1,127.0.0.1",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_WITH_GLOO": "1",
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": "127.0.0.1:20018",
        "POD_IP": "127.0.0.1",
    }
    found = environments("paddle", FLEET)
    assert found["pserver", 1] == everybody | {
        "PADDLE_TRAINER_ID": "1",
        "TRAINING_ROLE": "PSERVER",
        "PADDLE_TRAINING_ROLE": "PSERVER",
        "PADDLE_PORT": "20020",
    }
    assert found["trainer", 0] == everybody | {
        "PADDLE_TRAINER_ID": "0",
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_PORT": "20040",
    }


def test_collective_workers_get_no_variables_of_servers() -> None:
    assert environments("paddle", WORKERS)["trainer", 1] == {
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:36000,10.0.0.2:36000",
        "PADDLE_TRAINERS": "10.0.0.1,10.0.0.2",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ID": "1",
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "POD_IP": "10.0.0.2",
        "PADDLE_PORT": "36000",
    }


def test_pytorch() -> None:
    assert environments("torch", WORKERS)["trainer", 1] == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "36000",
        "WORLD_SIZE": "2",
        "RANK": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }


def test_on_one_machine_gloo_stays_on_it() -> None:
    here = {("trainer", 0): Endpoint(HOST, 20000)}
    assert environments("torch", here)["trainer", 0]["GLOO_SOCKET_IFNAME"] == "lo"


def test_addresses_are_in_numeric_order() -> None:
    many = {("trainer", index): Endpoint(HOST, 20000 + index) for index in range(11)}
    endpoints = environments("paddle", many)["trainer", 0]["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert endpoints == [f"127.0.0.1:{20000 + index}" for index in range(11)]


def test_frameworks_of_the_coordination_store_get_no_variables() -> None:
    assert environments("native", FLEET) == environments("command", FLEET) == {}
