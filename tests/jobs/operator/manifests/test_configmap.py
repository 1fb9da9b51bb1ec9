"""The ConfigMap with the addresses of a job's pods, by vectors C1 to C9."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.operator.decide.peer_config import desired_config_map, port_of
from jobs.operator.manifests.configmap import data
from jobs.operator.model.spec import read
from tests.jobs.operator.world import paddle_job, role

ADDRESSES = {"wd-ps-0": "10.0.0.1", "wd-ps-1": "10.0.0.2", "wd-worker-0": "10.0.0.3", "wd-worker-1": "10.0.0.4"}
PORT = 41000


def variables(port: int = PORT, addresses: dict[str, str] | None = None, **spec: Any) -> dict[str, str]:
    roles = spec if "worker" in spec else {"ps": 2, "worker": 2, **spec}
    return data(read(paddle_job(**roles)), addresses or ADDRESSES, port)


def test_c1_by_address() -> None:
    assert variables() == {
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_PORT": "41000",
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:41000,10.0.0.2:41000",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.3:41000,10.0.0.4:41000",
        "PADDLE_TRAINERS": "10.0.0.3,10.0.0.4",
        "PADDLE_TRAINERS_NUM": "2",
    }


def test_c2_by_service() -> None:
    by_name = variables(36000, intranet="Service")
    assert by_name["PADDLE_PSERVERS_IP_PORT_LIST"] == "wd-ps-0:36000,wd-ps-1:36000"
    assert by_name["PADDLE_TRAINER_ENDPOINTS"] == "wd-worker-0:36000,wd-worker-1:36000"
    assert by_name["PADDLE_TRAINERS"] == "wd-worker-0,wd-worker-1"


@pytest.mark.parametrize("with_gloo", [1, 2])
def test_c3_gloo_by_service(with_gloo: int) -> None:
    gloo = {
        key: value for key, value in variables(36000, intranet="Service", withGloo=with_gloo).items() if "GLOO" in key
    }
    assert gloo == {
        "PADDLE_WITH_GLOO": str(with_gloo),
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": "wd-ps-0:36018",
    }


def test_c5_collective_jobs_need_no_gloo() -> None:
    assert "PADDLE_WITH_GLOO" not in variables(worker=2, withGloo=1)


def test_c6_gloo_is_off_with_0() -> None:
    assert not any("GLOO" in key for key in variables(withGloo=0))


def pods(addresses: dict[str, str]) -> dict[str, Any]:
    return {name: {"metadata": {"name": name, "uid": name}, "status": {"podIP": ip}} for name, ip in addresses.items()}


def test_c7_endpoints_are_in_the_order_of_the_indices() -> None:
    shuffled = dict(reversed(ADDRESSES.items()))
    body = desired_config_map(read(paddle_job(ps=2, worker=2)), pods(shuffled), None, 1)
    assert body is not None
    assert body["data"]["PADDLE_TRAINERS"] == "10.0.0.3,10.0.0.4"


def test_l2_while_an_address_is_missing_there_is_no_config_map() -> None:
    missing = {**ADDRESSES, "wd-worker-1": ""}
    assert desired_config_map(read(paddle_job(ps=2, worker=2)), pods(missing), None, 1) is None


def test_c9_heterogeneous_workers_are_listed() -> None:
    job = paddle_job(ps=1, worker=1, heter=role(1))
    addresses = {"wd-ps-0": "10.0.0.1", "wd-worker-0": "10.0.0.2", "wd-heter-0": "10.0.0.3"}
    assert data(read(job), addresses, PORT)["PADDLE_HETER_ENDPOINTS"] == "10.0.0.3:41000"


def test_the_master_of_the_native_framework_is_listed() -> None:
    job = paddle_job(worker=1, master=role(1))
    addresses = {"wd-master-0": "10.0.0.1", "wd-worker-0": "10.0.0.2"}
    assert data(read(job), addresses, PORT)["PADDLE_MASTER_ENDPOINTS"] == "10.0.0.1:41000"


def test_a_job_keeps_its_port() -> None:
    job = read(paddle_job(worker=1))
    first = port_of(job, None)
    assert first is not None
    assert 36000 <= first <= 56000 - 20
    assert port_of(job, {"data": {"PADDLE_PORT": "47020"}}) == 47020
    assert port_of(job, None) == first
