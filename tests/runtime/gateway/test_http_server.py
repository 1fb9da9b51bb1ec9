import json
import re
import struct

import numpy as np
import pytest

from runtime import contract
from runtime.data.record_codec import decode
from runtime.gateway.http_server import Service
from runtime.gateway.session import Desk
from runtime.messages import training as messages
from runtime.trainer.environment import Alone
from runtime.trainer.job import Job
from tests.faults import datasets
from tests.messages import mentions, pattern


@pytest.fixture
def leaving():
    return []


@pytest.fixture
def dataset():
    return "public/diabetes"


@pytest.fixture
def send(tmp_path, leaving, dataset):
    """Send a request to a gateway whose program trains alone on the dataset, for two passes."""
    environment = contract.read(
        {
            contract.DATASET: dataset,
            contract.DATA_PATH: str(tmp_path / "data"),
            contract.PASSES: "2",
            contract.OUTPUT_DIR: str(tmp_path),
        }
    )
    job = Job(environment, Alone(environment))
    service = Service(Desk(job, job.source()), lambda: "".join(leaving))
    root = "/" + service.address.rpartition("/")[2]

    def send(method, path, body=b""):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = service.answer(method, root + path, body)
        return reply.status, json.loads(reply.body) if reply.kind == "application/json" else reply.body

    service.start()
    yield send
    service.close()


def declare(send, **more):
    return send("POST", "/v1/params", {"params": {"w": {"shape": [3], "values": [1, 2, 3]}}, **more})


def test_a_task_stays_assigned_until_it_is_reported(send):
    _status, first = send("GET", "/v1/task")
    assert send("GET", "/v1/task")[1] == first
    assert send("POST", f"/v1/task/{first['task']}/done", {"epoch": first["epoch"]})[0] == 200
    assert send("GET", "/v1/task")[1]["task"] != first["task"]


def test_every_record_comes_once_in_each_pass_and_then_there_is_no_more(send):
    seen = {0: 0, 1: 0}
    while (answer := send("GET", "/v1/task"))[0] == 200:
        task = answer[1]
        seen[task["pass"]] += task["records"]
        send("POST", f"/v1/task/{task['task']}/done", {"epoch": task["epoch"]})
    assert seen == {0: 353, 1: 353}
    assert answer[0] == 410
    assert answer[1]["code"] == "done"


def test_records_come_as_text_and_as_bytes(send):
    _status, task = send("GET", "/v1/task")
    lines = send("GET", f"/v1/records/{task['task']}?format=csv")[1].decode().splitlines()
    raw = send("GET", f"/v1/records/{task['task']}")[1]
    (length,) = struct.unpack("<I", raw[:4])
    features, label = decode(raw[4 : 4 + length])
    assert len(lines) == task["records"]
    assert [float(value) for value in lines[0].split(",")] == [label, *features.tolist()]


@pytest.mark.parametrize("dataset", [datasets.NAME])
def test_records_of_a_missing_file_are_reported_to_the_master_and_end_the_job(dataset, tmp_path, request):
    file = datasets.make(tmp_path / "data", 2)
    send = request.getfixturevalue("send")
    file.unlink()
    for _ in range(2):
        _status, task = send("GET", "/v1/task")
        status, body = send("GET", f"/v1/records/{task['task']}")
        assert (status, body["code"]) == (409, "stale")
        assert f"{file.name} cannot be read (No such file or directory). Ask for the next" in body["why"]
    status, body = send("GET", "/v1/task")
    assert (status, body["code"]) == (409, "job_failed")
    assert mentions(body["why"], messages.DATASET_UNREADABLE)


@pytest.mark.parametrize("how", ["done", "fail", "release"])
def test_a_report_of_another_epoch_is_stale(send, how):
    _status, task = send("GET", "/v1/task")
    status, body = send("POST", f"/v1/task/{task['task']}/{how}", {"epoch": task["epoch"] + 1})
    assert (status, body["code"]) == (409, "stale")


def test_a_returned_task_is_assigned_again(send):
    _status, task = send("GET", "/v1/task")
    send("POST", f"/v1/task/{task['task']}/release", {"epoch": task["epoch"]})
    _status, again = send("GET", "/v1/task")
    assert (again["task"], again["epoch"]) == (task["task"], task["epoch"] + 1)


def test_a_step_is_made_of_the_gradients_of_all_parameters(send):
    params = {"w": {"shape": [3]}, "b": {"shape": [1], "dtype": "f8"}}
    assert send("POST", "/v1/params", {"params": params, "opt": {"name": "SGD", "lr": 1.0}}) == (200, {"version": 0})
    refused = send("POST", "/v1/params/w?op=push_pull&n=4", np.ones(3, "<f4").tobytes())
    assert (refused[0], refused[1]["why"]) == (422, messages.GRADIENT_MISSING(name="'b'"))
    assert send("POST", "/v1/params/b?op=push&dtype=f8", np.full(1, 2.0, "<f8").tobytes())[0] == 200
    status, values = send("POST", "/v1/params/w?op=push_pull&n=4", np.ones(3, "<f4").tobytes())
    assert status == 200
    assert np.frombuffer(values, "<f4").tolist() == [-1, -1, -1]
    assert send("GET", "/v1/params/b?dtype=csv")[1] == b"-2.0\n"


def test_initial_values_may_be_set(send):
    declare(send)
    assert send("GET", "/v1/params/w?dtype=csv")[1] == b"1.0\n2.0\n3.0\n"


def declare_table(send, **more):
    declare(send, opt={"name": "SGD", "lr": 1.0})
    return send("POST", "/v1/tables", {"name": "words", "dim": 2, "init": {"name": "Zeros", "scale": 0}, **more})


def test_rows_of_a_table_are_updated_with_the_step_that_follows(send):
    assert declare_table(send) == (200, {})
    assert send("POST", "/v1/tables/words/push?dtype=csv", b"7,1.0,2.0\n-3,0.5,0\n7,1.0,0.0\n") == (200, {})
    assert send("POST", "/v1/tables/words/pull?dtype=csv", b"7 8") == (200, b"0.0,0.0\n0.0,0.0\n")
    send("POST", "/v1/params/w?op=push_pull&n=4", np.ones(3, "<f4").tobytes())
    assert send("POST", "/v1/tables/words/pull?dtype=csv", b"7,8,-3")[1] == b"-2.0,-2.0\n0.0,0.0\n-0.5,0.0\n"


def test_rows_of_a_table_come_and_go_as_bytes_too(send):
    declare_table(send)
    ids = np.array([5, 9], "<i8").tobytes()
    send("POST", "/v1/tables/words/push", ids + np.array([[1, 2], [3, 4]], "<f4").tobytes())
    send("POST", "/v1/params/w?op=push_pull&n=4", np.ones(3, "<f4").tobytes())
    rows = send("POST", "/v1/tables/words/pull", ids)[1]
    assert np.frombuffer(rows, "<f4").tolist() == [-1, -2, -3, -4]


WRONG_TABLES = [
    ("", {"name": "more"}, "cannot be read: 'dim'"),
    ("", {"name": "words", "dim": 2}, pattern(messages.TABLE_NAME_INVALID)),
    ("", {"name": "more", "dim": 2, "init": {"name": "Magic"}}, "cannot be read"),
    ("/letters/pull", b"", "There is no table 'letters'; there are words"),
    ("/words/pull?dtype=csv", b"seven", "whole numbers"),
    ("/words/pull", b"123", "whole numbers"),
    ("/words/pull?dtype=f8", b"", "f4 or csv"),
    ("/words/push?dtype=csv", b"7,1,2\n7,1\n", "Line 2 has 2 numbers; an id and 2 of a gradient are due"),
    ("/words/push?dtype=csv", b"7,1,two\n", "rows cannot be read"),
    ("/words/push", b"12345", "5 bytes are no ids"),
]


@pytest.mark.parametrize(("path", "body", "words"), WRONG_TABLES)
def test_a_wrong_request_about_a_table_is_answered_with_a_message(send, path, body, words):
    declare_table(send)
    status, response = send("POST", f"/v1/tables{path}", body)
    assert status == 422
    assert re.search(words, response["why"])


WRONG = [
    ("GET", "/v1/params/v", b"", 422, pattern(messages.PARAMETER_UNKNOWN, name="'v'")),
    ("POST", "/v1/params/w", b"1234", 422, "has 1 numbers, the parameter 3"),
    ("POST", "/v1/params/w", b"12345", 422, "cannot be read as f4"),
    ("POST", "/v1/params/w?dtype=i4", b"", 422, "f4, f8 or csv"),
    ("POST", "/v1/params/w?n=many", bytes(12), 422, "number of samples"),
    ("POST", "/v1/params/w?dtype=csv", b"1,2,nan", 422, pattern(messages.GRADIENT_NOT_FINITE)),
    ("POST", "/v1/params", b"{", 422, "no JSON"),
    ("POST", "/v1/report", {"cost": "low"}, 422, pattern(messages.REPORT_VALUE_INVALID)),
    ("POST", "/v1/save?path=../x", b"1", 422, pattern(messages.MODEL_PATH_OUTSIDE_OUTPUT)),
    ("GET", "/v1/records/99", b"", 409, "GET /v1/task"),
    ("GET", "/v1/weather", b"", 404, "no GET /v1/weather"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "words"), WRONG)
def test_a_wrong_request_is_answered_with_a_message(send, method, path, body, status, words):
    declare(send)
    got, response = send(method, path, body)
    assert got == status
    assert re.search(words, response["why"])


def test_parameters_before_they_are_declared_are_refused(send):
    assert "POST them to /v1/params first" in send("GET", "/v1/params/w")[1]["why"]


def test_files_that_a_program_saves_are_artifacts(send, tmp_path):
    assert send("POST", "/v1/save?path=model.txt", b"42") == (200, {"saved": True})
    assert (tmp_path / "model.txt").read_text() == "42"


def test_every_answer_is_503_once_the_trainer_has_to_end(send, leaving):
    leaving.append("it was asked to end (SIGTERM)")
    status, body = send("GET", "/v1/task")
    assert (status, body["code"]) == (503, "leaving")
