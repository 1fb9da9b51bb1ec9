"""Launch of programs that were written for other frameworks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runtime import contract
from runtime.launch import awaited, completed

PADDLE = {contract.FRAMEWORK: "paddle"}
WORKER = {
    **PADDLE,
    "TRAINING_ROLE": "TRAINER",
    "PADDLE_TRAINER_ID": "1",
    "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:36000,10.0.0.2:36000",
    "PADDLE_TRAINERS_NUM": "2",
}
SERVERS = {"PADDLE_PSERVERS_IP_PORT_LIST": "127.0.0.1:20000,[::1]:20020"}


def added(environ: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in completed(environ).items() if name not in environ}


def test_a_collective_worker_gets_the_variables_that_paddle_3_reads() -> None:
    assert added(WORKER) == {
        "PADDLE_MASTER": "10.0.0.1:36000",
        "PADDLE_CURRENT_ENDPOINT": "10.0.0.2:36000",
        "PADDLE_GLOBAL_RANK": "1",
        "PADDLE_GLOBAL_SIZE": "2",
        "PADDLE_LOCAL_RANK": "0",
        "PADDLE_RANK_IN_NODE": "0",
        "PADDLE_NNODES": "2",
        "PADDLE_DISTRI_BACKEND": "gloo",
    }


def test_with_graphics_cards_paddle_chooses_its_own_transport() -> None:
    assert "PADDLE_DISTRI_BACKEND" not in completed({**WORKER, "FLAGS_selected_gpus": "0"})


def test_a_fleet_runs_programs_in_the_form_that_servers_support() -> None:
    assert added(WORKER | SERVERS) == {"FLAGS_enable_pir_api": "0"}


def test_variables_that_are_set_are_kept() -> None:
    assert completed({**WORKER, "PADDLE_MASTER": "elsewhere:1"})["PADDLE_MASTER"] == "elsewhere:1"


def test_the_rank_of_a_pytorch_process_is_its_index() -> None:
    environment = {contract.FRAMEWORK: "torch", contract.INDEX: "3", contract.TRAINERS: "4"}
    assert added(environment) == {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


def test_in_a_cluster_pytorch_s_processes_meet_at_the_first_of_the_controller_s_endpoints() -> None:
    environment = {**WORKER, contract.FRAMEWORK: "torch", contract.INDEX: "1", contract.TRAINERS: "2"}
    found = completed(environment)
    assert (found["MASTER_ADDR"], found["MASTER_PORT"], found["RANK"]) == ("10.0.0.1", "36000", "1")


def test_a_command_gets_no_variables() -> None:
    assert added({contract.FRAMEWORK: "command"}) == {}


def test_trainers_wait_for_servers_and_servers_for_nobody() -> None:
    assert awaited(WORKER | SERVERS) == [("127.0.0.1", 20000), ("::1", 20020)]
    assert awaited({**WORKER, **SERVERS, "TRAINING_ROLE": "PSERVER"}) == []
    assert awaited(WORKER) == []


def test_a_fleet_that_meets_through_gloo_waits_there() -> None:
    assert awaited({**WORKER, **SERVERS, "PADDLE_WITH_GLOO": "1"}) == []


# --- As a process ----------------------------------------------------------------------------------------------------
def launched(*command: str, link: int | None = None, **environ: str) -> subprocess.Popen[str]:
    variables = {**os.environ, **environ}
    if link is not None:
        variables[contract.AGENT_FD] = str(link)
    return subprocess.Popen(
        [sys.executable, "-m", "runtime.launch", "--", *command],
        env=variables,
        pass_fds=() if link is None else (link,),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(contract.__file__).parent.parent,
    )


def test_the_program_takes_its_place_and_its_exit_code_is_the_program_s() -> None:
    process = launched("sh", "-c", "echo $$; exit 7")
    out, _ = process.communicate(timeout=30)
    assert (out.strip(), process.returncode) == (str(process.pid), 7)


def test_the_agent_is_notified_before_the_program_begins_without_its_knowledge() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = launched("sh", "-c", f"echo ${contract.AGENT_FD}", link=theirs.fileno())
        theirs.close()
        with ours.makefile() as lines:
            message = json.loads(lines.readline())
            assert lines.readline() == ""
    out, _ = process.communicate(timeout=30)
    assert message == {"op": contract.HELLO, "address": "", "release": contract.RELEASE}
    assert out.strip() == ""


def test_a_trainer_begins_when_its_server_listens() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{server.getsockname()[1]}"
        process = launched("echo", "begins", TRAINING_ROLE="TRAINER", PADDLE_PSERVERS_IP_PORT_LIST=place)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.6)
        server.listen()
        out, _ = process.communicate(timeout=30)
    assert out.strip() == "begins"


def test_the_job_s_own_python_is_found_by_its_name() -> None:
    out, _ = launched("python", "-c", "import sys; print(sys.executable)").communicate(timeout=30)
    assert Path(out.strip()).parent == Path(sys.executable).parent


def test_a_program_that_is_not_there_is_named() -> None:
    process = launched("no-such-program")
    _, err = process.communicate(timeout=30)
    assert process.returncode == contract.EXIT_ERROR
    assert err.strip() == "no-such-program cannot be started: No such file or directory."
