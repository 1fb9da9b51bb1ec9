import json
import struct

import numpy as np
import pytest

from runtime import contract
from runtime.data.records import decode
from runtime.gateway.desk import Desk
from runtime.gateway.service import Service
from runtime.trainer.job import Job
from runtime.trainer.surroundings import Alone


@pytest.fixture
def leaving():
    return []


@pytest.fixture
def ask(tmp_path, leaving):
    """Send a request to a gateway whose program trains alone on the diabetes set, for two passes."""
    environment = contract.read(
        {contract.DATASET: "public/diabetes", contract.PASSES: "2", contract.OUTPUT_DIR: str(tmp_path)}
    )
    job = Job(environment, Alone(environment))
    service = Service(Desk(job, job.source()), lambda: "".join(leaving))
    root = "/" + service.address.rpartition("/")[2]

    def ask(method, path, body=b""):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = service.answer(method, root + path, body)
        return reply.status, json.loads(reply.body) if reply.kind == "application/json" else reply.body

    service.start()
    yield ask
    service.close()


def declare(ask, **more):
    return ask("POST", "/v1/params", {"params": {"w": {"shape": [3], "values": [1, 2, 3]}}, **more})


def test_a_task_stays_in_hand_until_it_is_reported(ask):
    _status, first = ask("GET", "/v1/task")
    assert ask("GET", "/v1/task")[1] == first
    assert ask("POST", f"/v1/task/{first['task']}/done", {"epoch": first["epoch"]})[0] == 200
    assert ask("GET", "/v1/task")[1]["task"] != first["task"]


def test_every_record_comes_once_in_each_pass_and_then_there_is_no_more(ask):
    seen = {0: 0, 1: 0}
    while (answer := ask("GET", "/v1/task"))[0] == 200:
        task = answer[1]
        seen[task["pass"]] += task["records"]
        ask("POST", f"/v1/task/{task['task']}/done", {"epoch": task["epoch"]})
    assert seen == {0: 353, 1: 353}
    assert answer[0] == 410
    assert answer[1]["code"] == "done"


def test_records_come_as_text_and_as_bytes(ask):
    _status, task = ask("GET", "/v1/task")
    lines = ask("GET", f"/v1/records/{task['task']}?format=csv")[1].decode().splitlines()
    raw = ask("GET", f"/v1/records/{task['task']}")[1]
    (length,) = struct.unpack("<I", raw[:4])
    features, label = decode(raw[4 : 4 + length])
    assert len(lines) == task["records"]
    assert [float(value) for value in lines[0].split(",")] == [label, *features.tolist()]


@pytest.mark.parametrize("how", ["done", "fail", "release"])
def test_a_report_of_another_epoch_is_stale(ask, how):
    _status, task = ask("GET", "/v1/task")
    status, body = ask("POST", f"/v1/task/{task['task']}/{how}", {"epoch": task["epoch"] + 1})
    assert (status, body["code"]) == (409, "stale")


def test_a_task_that_is_given_back_comes_again(ask):
    _status, task = ask("GET", "/v1/task")
    ask("POST", f"/v1/task/{task['task']}/release", {"epoch": task["epoch"]})
    _status, again = ask("GET", "/v1/task")
    assert (again["task"], again["epoch"]) == (task["task"], task["epoch"] + 1)


def test_a_step_is_made_of_the_gradients_of_all_parameters(ask):
    params = {"w": {"shape": [3]}, "b": {"shape": [1], "dtype": "f8"}}
    assert ask("POST", "/v1/params", {"params": params, "opt": {"name": "SGD", "lr": 1.0}}) == (200, {"version": 0})
    refused = ask("POST", "/v1/params/w?op=push_pull&n=4", np.ones(3, "<f4").tobytes())
    assert (refused[0], refused[1]["why"]) == (422, "The gradient of 'b' is missing; push one for every parameter.")
    assert ask("POST", "/v1/params/b?op=push&dtype=f8", np.full(1, 2.0, "<f8").tobytes())[0] == 200
    status, values = ask("POST", "/v1/params/w?op=push_pull&n=4", np.ones(3, "<f4").tobytes())
    assert status == 200
    assert np.frombuffer(values, "<f4").tolist() == [-1, -1, -1]
    assert ask("GET", "/v1/params/b?dtype=csv")[1] == b"-2.0\n"


def test_first_values_may_be_given(ask):
    declare(ask)
    assert ask("GET", "/v1/params/w?dtype=csv")[1] == b"1.0\n2.0\n3.0\n"


WRONG = [
    ("GET", "/v1/params/v", b"", 422, "There is no parameter 'v'"),
    ("POST", "/v1/params/w", b"1234", 422, "has 1 numbers, the parameter 3"),
    ("POST", "/v1/params/w", b"12345", 422, "cannot be read as f4"),
    ("POST", "/v1/params/w?dtype=i4", b"", 422, "f4, f8 or csv"),
    ("POST", "/v1/params/w?n=many", bytes(12), 422, "number of samples"),
    ("POST", "/v1/params/w?dtype=csv", b"1,2,nan", 422, "NaN"),
    ("POST", "/v1/params", b"{", 422, "no JSON"),
    ("POST", "/v1/report", {"cost": "low"}, 422, "report takes numbers"),
    ("POST", "/v1/save?path=../x", b"1", 422, "output directory"),
    ("GET", "/v1/records/99", b"", 409, "GET /v1/task"),
    ("GET", "/v1/weather", b"", 404, "no GET /v1/weather"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "words"), WRONG)
def test_a_wrong_request_is_answered_with_a_sentence(ask, method, path, body, status, words):
    declare(ask)
    got, told = ask(method, path, body)
    assert got == status
    assert words in told["why"]


def test_parameters_before_they_are_declared_are_refused(ask):
    assert "POST them to /v1/params first" in ask("GET", "/v1/params/w")[1]["why"]


def test_what_a_program_saves_is_an_artifact(ask, tmp_path):
    assert ask("POST", "/v1/save?path=model.txt", b"42") == (200, {"saved": True})
    assert (tmp_path / "model.txt").read_text() == "42"


def test_every_answer_is_503_once_the_trainer_has_to_end(ask, leaving):
    leaving.append("it was asked to end (SIGTERM)")
    status, body = ask("GET", "/v1/task")
    assert (status, body["code"]) == (503, "leaving")
