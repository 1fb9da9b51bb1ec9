"""Requests and output of the commands."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
import yaml

from regatta import config, jobfile
from regatta.cli import main
from regatta.config import Context, Settings
from regatta.session import Outside
from tests.client.portal import SERVER, Answer, PaperPortal, job, lines, ok, problem

ME = {"username": "ada", "is_admin": False, "namespaces": [{"name": "ada", "role": "owner"}]}
SUBMIT = "POST /api/v1/namespaces/ada/jobs"
JOB, LOGS, EVENTS = "GET /api/v1/jobs/j1", "GET /api/v1/jobs/j1/logs", "GET /api/v1/jobs/j1/events"
POINTS, METRICS = "GET /api/v1/jobs/j1/metrics/points", "GET /api/v1/jobs/j1/metrics"
SERIES = {"cost": {"x": [0, 1], "min": [2.0, 0.5], "max": [4.0, "NaN"], "last": [3.0, 0.5], "count": [4, 4]}}


@pytest.fixture(autouse=True)
def signed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv(config.SERVER, SERVER)
    monkeypatch.setenv(config.TOKEN, "rgt_x")
    monkeypatch.chdir(tmp_path)


def regatta(arguments: str, answers: dict[str, list[Answer]] | None = None) -> tuple[int, PaperPortal]:
    portal = PaperPortal({"GET /api/v1/me": [ok(ME)], **(answers or {})})
    return main(arguments.split(), Outside(portal, sleep=lambda _seconds: None, browse=lambda _page: False)), portal


def point(seq: int, value: float, key: str = "cost") -> dict[str, Any]:
    return {"seq": seq, "time": 0.0, "attempt": 1, "replica": "trainer-0", "step": seq, "key": key, "value": value}


# --- delete ----------------------------------------------------------------------------------------------------------
DELETE = "DELETE /api/v1/jobs/j1"


@pytest.mark.parametrize(("answer", "code", "deleted"), [("y\n", 0, 1), ("n\n", 130, 0), ("", 130, 0)])
def test_delete_removes_a_job_that_has_ended_after_a_question(
    monkeypatch: pytest.MonkeyPatch, answer: str, code: int, deleted: int
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    ended, portal = regatta("delete j1", {JOB: [ok(job())], DELETE: [ok(None, 204)]})
    assert (ended, [request.method for request in portal.asked].count("DELETE")) == (code, deleted)


def test_delete_asks_nothing_where_it_is_confirmed_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert regatta("delete j1 --yes", {JOB: [ok(job())], DELETE: [ok(None, 204)]})[0] == 0


# --- submit ----------------------------------------------------------------------------------------------------------
def submitted(arguments: str) -> dict[str, Any]:
    code, portal = regatta(f"submit -d {arguments}", {SUBMIT: [ok(job("QUEUED"), 201)]})
    assert code == 0
    [body] = portal.bodies()
    return dict(body)


NATIVE_SCRIPTS = [
    "from runtime import dist",
    "import runtime.dist as d",
    "def f():\n    from runtime.dist import init\n",
]
PLAIN_SCRIPTS = ["print()", "import runtimes", "from .runtime import dist", "a syntax error"]


@pytest.mark.parametrize("program", ["train.py", "python train.py"])
@pytest.mark.parametrize("source", NATIVE_SCRIPTS)
def test_a_python_file_that_imports_the_runtime_is_a_native_job(tmp_path: Path, source: str, program: str) -> None:
    (tmp_path / "train.py").write_text(source)
    assert submitted(f"--name digits --trainers 2 -- {program}") == {
        "name": "digits",
        "framework": "native",
        "entrypoint": "train.py",
        "files": {"train.py": source},
        "roles": {"trainer": {"replicas": 2}},
    }


@pytest.mark.parametrize("program", ["train.py", "python train.py"])
@pytest.mark.parametrize("source", PLAIN_SCRIPTS)
def test_any_other_python_file_is_a_command(tmp_path: Path, source: str, program: str) -> None:
    (tmp_path / "train.py").write_text(source)
    requested = submitted(f"-- {program}")
    assert (requested["framework"], requested["entrypoint"]) == ("command", ["python", "train.py"])


def test_a_script_whose_module_imports_the_runtime_is_a_native_job(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "loop.py").write_text("from runtime import dist")
    (tmp_path / "train.py").write_text("import loop")
    assert submitted("--code code -- train.py")["framework"] == "native"


def test_modules_that_a_script_imports_from_its_folder_are_sent_along(tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "net").mkdir(parents=True)
    (code / "train.py").write_text("import json, numpy\nfrom helper import loss\nimport train")
    (code / "helper.py").write_text("import net.model")
    (code / "net" / "__init__.py").write_text("")
    (code / "net" / "model.py").write_text("from . import other")
    (code / "net" / "other.py").write_text("")
    (code / "unused.py").write_text("")
    sent = submitted("-- python code/train.py --epochs 3")["files"]
    assert sorted(sent) == [
        "code/helper.py",
        "code/net/__init__.py",
        "code/net/model.py",
        "code/net/other.py",
        "code/train.py",
    ]


def test_the_framework_that_is_named_decides_how_a_script_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    requested = submitted("--framework torch -- python train.py")
    assert (requested["framework"], requested["entrypoint"]) == ("torch", "train.py")


def test_flags_give_each_trainer_its_resources_and_the_job_no_parameter_servers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    assert submitted("--pservers 0 --cpu 2.5 --memory 2Gi --gpu 1 -- python train.py")["roles"] == {
        "pserver": {"replicas": 0},
        "trainer": {"cpu": 2.5, "memory": "2Gi", "gpu": 1},
    }


def test_a_requirements_file_is_sent_without_its_comments(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "requirements.txt").write_text("# ours\nsix==1.16.0  # old\n\nattrs\n")
    assert submitted("--requirements requirements.txt -r pandas -- train.py")["requirements"] == [
        "pandas",
        "six==1.16.0",
        "attrs",
    ]


def test_flags_give_each_parameter_server_its_resources(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from runtime import dist")
    assert submitted("--pserver-cpu 0.5 --pserver-memory 4Gi -- python train.py")["roles"] == {
        "pserver": {"cpu": 0.5, "memory": "4Gi"},
    }


@pytest.mark.parametrize("arguments", ["-- python code/train.py", "--code code -- train.py"])
def test_a_requirements_file_that_is_not_used_is_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print()")
    (tmp_path / "code" / "requirements.txt").write_text("six")
    submitted(arguments)
    assert "--requirements code/requirements.txt" in capsys.readouterr().err


def test_the_entrypoint_of_a_file_may_be_in_the_code_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.yaml").write_text("name: a\nentrypoint: main.py\n")
    (tmp_path / "main.py").write_text("print()")
    assert submitted("jobs/job.yaml --code main.py")["files"] == {"main.py": "print()"}


def test_a_program_with_arguments_after_the_dashes_is_a_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    wanted = submitted("-- python train.py --name of-the-program -d")
    assert (wanted["framework"], wanted["entrypoint"], list(wanted["files"])) == (
        "command",
        ["python", "train.py", "--name", "of-the-program", "-d"],
        ["train.py"],
    )


def test_flags_override_the_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    text = "name: a\nentrypoint: train.py\npasses: 1\nenv: {A: old}\nrequirements: [six]\n"
    (tmp_path / "job.yaml").write_text(text)
    wanted = submitted("job.yaml --passes 3 --dataset public/digits -e A=new -e B=c=d -r attrs --pservers 2")
    assert (wanted["passes"], wanted["dataset"], wanted["env"]) == (3, "public/digits", {"A": "new", "B": "c=d"})
    assert (wanted["requirements"], wanted["roles"]) == (["six", "attrs"], {"pserver": {"replicas": 2}})


def test_the_program_of_an_image_is_not_a_local_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\nimage: team/train:1\nentrypoint: python3 /app/train.py\n")
    wanted = submitted("job.yaml")
    assert (wanted["image"], wanted["entrypoint"], wanted["files"]) == ("team/train:1", "python3 /app/train.py", {})


def test_a_folder_of_code_is_sent_by_its_paths(tmp_path: Path) -> None:
    (tmp_path / "code" / "net").mkdir(parents=True)
    (tmp_path / "code" / "net" / "model.py").write_text("M = 1")
    (tmp_path / "train.py").write_text("print()")
    assert set(submitted("--code code -- train.py")["files"]) == {"net/model.py", "train.py"}


def test_submit_follows_the_log_and_ends_as_the_job_does(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    answers: dict[str, list[Answer]] = {SUBMIT: [ok(job(), 201)], JOB: [ok(job("FAILED"))], LOGS: [ok(lines(1))]}
    code, _ = regatta("submit -- train.py", answers)
    assert (code, capsys.readouterr().out) == (100, "j1\ntrainer-0  line 1\n")


def test_a_dry_run_submits_nothing_and_prints_the_verdict(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    preview = {"verdict": "queued", "reason": "Needs 2 cpu.", "numbers": {}, "plan": {"replicas": [{}, {}]}}
    code, portal = regatta("submit --dry-run -- train.py", {SUBMIT: [ok(preview)]})
    assert (code, portal.asked[-1].url.params["dry_run"]) == (0, "true")
    assert "Needs 2 cpu." in capsys.readouterr().out


def test_a_dry_run_of_what_can_never_fit_is_5(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    preview = {"verdict": "refused", "reason": "It needs 99 cpu.", "numbers": {}, "plan": {}}
    assert regatta("submit --dry-run -- train.py", {SUBMIT: [ok(preview)]})[0] == 5


@pytest.mark.parametrize(
    "arguments", ["submit", "submit a.yaml b.yaml", "submit a.yaml --example digits", "submit -e A -- x"]
)
def test_a_submit_with_too_few_or_too_many_arguments_is_2(arguments: str) -> None:
    assert regatta(arguments)[0] == 2


# --- Output formats --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("form", "read"),
    [("json", json.loads), ("yaml", yaml.safe_load), ("name", lambda text: [{"id": text.strip()}])],
)
def test_every_form_lists_the_jobs(form: str, read: Any, capsys: pytest.CaptureFixture[str]) -> None:
    regatta(f"jobs -o {form}", {"GET /api/v1/namespaces/ada/jobs": [ok({"results": [job()], "next": None})]})
    assert [each["id"] for each in read(capsys.readouterr().out)] == ["j1"]


def test_code_in_a_cloned_file_stays_readable(capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"name": "digits", "files": {"train.py": "import numpy\n\nprint(1)\n"}}
    regatta("clone j1", {"POST /api/v1/jobs/j1/clone": [ok({"spec": spec})]})
    text = capsys.readouterr().out
    assert yaml.safe_load(text) == spec
    assert "train.py: |" in text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", 0.1),
        ("1e-3", 0.001),
        ("5", 5),
        ("true", True),
        ("adam", "adam"),
        ('"1.0"', "1.0"),
        ("", ""),
        ("a: b", "a: b"),
        ("[1, 2]", "[1, 2]"),
        ("2026-11-27", "2026-11-27"),
        ("{", "{"),
    ],
)
def test_a_parameter_of_a_flag_has_its_type(text: str, value: object) -> None:
    found = jobfile.scalar(text)
    assert (found, type(found)) == (value, type(value))


def test_parameters_of_flags_replace_those_of_the_file() -> None:
    spec = {"params": {"lr": 0.1, "batch": 64}}
    jobfile.add(spec, code=(), requirements=(), env={}, params={"lr": "0.2"})
    assert spec == {"params": {"lr": 0.2, "batch": 64}}


def test_a_clone_is_submitted_with_the_values_of_the_flags() -> None:
    spec = {"name": "digits", "roles": {"trainer": {"replicas": 1, "cpu": 1}}}
    answers: dict[str, list[Answer]] = {
        "POST /api/v1/jobs/j1/clone": [ok({"spec": spec})],
        JOB: [ok(job())],
        SUBMIT: [ok(job(id="j2"), 201)],
    }
    code, portal = regatta("clone j1 --submit --trainers 4", answers)
    assert (code, portal.bodies()) == (0, [{"name": "digits", "roles": {"trainer": {"replicas": 4, "cpu": 1}}}])


# --- logs ------------------------------------------------------------------------------------------------------------
def test_without_options_the_last_lines_are_printed_and_how_to_see_all(capsys: pytest.CaptureFixture[str]) -> None:
    tail = {**lines(*range(5001, 6001)), "more": True}
    code, portal = regatta("logs j1", {LOGS: [ok(tail), ok(lines(*range(5001, 6001)))]})
    printed = capsys.readouterr()
    assert (code, len(printed.out.splitlines())) == (0, 1000)
    assert "regatta logs --after 0 j1" in printed.err
    assert portal.asked[0].url.params["after"] == "-1"


def test_tail_prints_the_requested_number_of_lines(capsys: pytest.CaptureFixture[str]) -> None:
    regatta("logs --tail 2 j1", {LOGS: [ok({**lines(8, 9), "more": True}), ok(lines(8, 9))]})
    assert capsys.readouterr().out.splitlines() == ["trainer-0  line 8", "trainer-0  line 9"]


def test_since_is_sent_to_the_portal_as_a_moment() -> None:
    _, portal = regatta("logs --since 2026-01-31T12:00:00+00:00 j1", {LOGS: [ok(lines(1))]})
    assert portal.asked[0].url.params["since"] == "2026-01-31T12:00:00+00:00"


def test_an_invalid_since_is_2() -> None:
    assert regatta("logs --since yesterday j1")[0] == 2


def test_lines_as_json_are_one_object_each(capsys: pytest.CaptureFixture[str]) -> None:
    regatta("logs --after 0 -o json j1", {LOGS: [ok(lines(1, 2))]})
    assert [json.loads(text)["seq"] for text in capsys.readouterr().out.splitlines()] == [1, 2]


# --- metrics and events ----------------------------------------------------------------------------------------------
def test_omitted_metrics_are_counted_with_how_to_see_them(capsys: pytest.CaptureFixture[str]) -> None:
    left_out = [f"m{number}" for number in range(1204)]
    regatta("metrics j1", {METRICS: [ok({"series": SERIES, "next": 8, "left_out": left_out})]})
    message = "1,204 further metrics are not shown. Name them to see them: regatta metrics j1 m0 m1 m2"
    assert message in capsys.readouterr().err


def test_metrics_are_summarised_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    regatta("metrics j1", {METRICS: [ok({"series": SERIES, "next": 8})]})
    assert "cost" in capsys.readouterr().out


def test_every_value_is_printed_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    pages: list[Answer] = [
        ok({"points": [point(1, 3.0)], "last": 1, "more": True}),
        ok({"points": [point(2, 0.5)], "last": 2, "more": False}),
    ]
    regatta("metrics j1 cost --csv", {POINTS: pages})
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["value"]) for row in rows] == [3.0, 0.5]


def test_no_cell_of_the_csv_is_a_formula_or_split_by_its_own_comma(capsys: pytest.CaptureFixture[str]) -> None:
    page = ok({"points": [{**point(1, -3.0), "key": "=1+1,2"}], "last": 1, "more": False})
    regatta("metrics j1 --csv", {POINTS: [page]})
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["key"], row["value"]) == ("'=1+1,2", "-3.0")


def test_values_are_followed_to_the_end_of_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    pages: list[Answer] = [
        ok({"points": [point(1, 3.0)], "last": 1, "more": False}),
        ok({"points": [point(2, 0.5)], "last": 2, "more": False}),
    ]
    code, _ = regatta("metrics -f j1", {POINTS: pages, JOB: [ok(job()), ok(job("SUCCEEDED"))]})
    assert (code, [text.split()[-1] for text in capsys.readouterr().out.splitlines()]) == (0, ["3", "0.5"])


def test_events_are_printed_as_messages(capsys: pytest.CaptureFixture[str]) -> None:
    event = {"time": "2026-01-01T00:00:00Z", "kind": "replica", "replica": "trainer-0", "text": "trainer-0 joined."}
    regatta("events j1", {EVENTS: [ok({"events": [event]})]})
    assert "trainer-0 joined." in capsys.readouterr().out


def test_events_of_all_pages_are_shown_the_oldest_first(capsys: pytest.CaptureFixture[str]) -> None:
    def page(number: int, older: str | None) -> Answer:
        event = {"time": f"2026-01-01T00:00:0{number}Z", "replica": "trainer-0", "text": f"number {number}"}
        return ok({"events": [event], "older": older})

    _, portal = regatta("events j1", {EVENTS: [page(3, "c"), page(2, "b"), page(1, None)]})
    assert [line[-1] for line in capsys.readouterr().out.splitlines() if "number" in line] == ["1", "2", "3"]
    assert [request.url.params.get("before") for request in portal.asked] == [None, "c", "b"]


# --- Other commands --------------------------------------------------------------------------------------------------
def test_scale_sends_each_role(capsys: pytest.CaptureFixture[str]) -> None:
    _, portal = regatta("scale j1 trainer=4", {"POST /api/v1/jobs/j1/scale": [ok(job(), 202)]})
    assert portal.bodies() == [{"trainer": 4}]


@pytest.mark.parametrize("argument", ["trainer", "trainer=", "trainer=many"])
def test_a_scale_that_names_no_number_is_2(argument: str) -> None:
    assert regatta(f"scale j1 {argument}")[0] == 2


STACKS = {
    "attempt": 1,
    "spread_ms": 1.5,
    "replicas": [
        {"replica": "trainer-0", "state": "running", "note": None, "threads": [], "left_out": 0},
        {"replica": "trainer-1", "state": "stopped", "note": "The process is stopped.", "threads": [], "left_out": 0},
    ],
    "groups": [
        {
            "frames": [{"file": "train.py", "line": 7, "function": "step"}],
            "members": [{"replica": "trainer-0", "thread": "MainThread"}],
            "roles": {"trainer": 1},
        }
    ],
}


def test_stacks_are_printed_by_group_after_the_replicas_that_do_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert regatta("stacks j1", {"POST /api/v1/jobs/j1/stacks": [ok(STACKS)]})[0] == 0
    assert capsys.readouterr().out.splitlines() == [
        "trainer-1: stopped. The process is stopped.",
        "",
        "1 x trainer",
        "  trainer-0 MainThread",
        "    step  train.py:7",
    ]


HOLD, RELEASE = "POST /api/v1/jobs/j1/hold", "POST /api/v1/jobs/j1/release"
FRAME = {
    "file": "train.py",
    "line": 7,
    "function": "step",
    "variables": [
        {"name": "w", "type": "numpy.ndarray", "size": 4096, "shape": "(1024,) float32", "text": "[0, …]"},
        {"name": "x", "type": "Odd", "size": None, "shape": "", "text": "<Odd>"},
    ],
}


def asked(replica: str, held: bool, note: str | None = None) -> dict[str, Any]:
    return {"replica": replica, "held": held, "note": note}


def test_a_hold_names_the_replicas_and_those_that_cannot_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"replicas": [asked("trainer-0", False), asked("trainer-1", False, "trainer-1 is not running.")]}
    _, portal = regatta("hold j1 -m 2", {HOLD: [ok(answer)]})
    assert portal.bodies() == [{"seconds": 120, "replicas": None}]
    assert capsys.readouterr().err.splitlines() == [
        "trainer-1: trainer-1 is not running.",
        "A program that ends with an exception is held for 2 min: trainer-0.",
    ]


def test_a_release_sends_the_chosen_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    _, portal = regatta("release j1 -r trainer-0", {RELEASE: [ok({"replicas": [asked("trainer-0", False)]})]})
    assert (portal.bodies(), capsys.readouterr().err) == ([{"replicas": ["trainer-0"]}], "Released: trainer-0.\n")


def test_the_variables_of_the_first_held_replica_are_printed_by_frame(capsys: pytest.CaptureFixture[str]) -> None:
    replicas = [{"name": "trainer-0", "held": None}, {"name": "trainer-1", "held": {"exception": "ValueError"}}]
    held = job(replicas=[{"role": "trainer", "index": 0, "state": "registered", **one} for one in replicas])
    found = {"exception": "ValueError", "message": "no", "complete": False, "frames": [FRAME]}
    _, portal = regatta("variables j1", {JOB: [ok(held)], "POST /api/v1/jobs/j1/variables": [ok(found)]})
    assert portal.bodies()[-1] == {"replica": "trainer-1"}
    assert capsys.readouterr().out.splitlines() == [
        "ValueError: no",
        "",
        "step  train.py:7",
        "    w: numpy.ndarray (1024,) float32, 4,096 bytes = [0, …]",
        "    x: Odd = <Odd>",
        "",
        "Some variables are left out: there are too many, or they took too long to describe.",
    ]


def test_variables_of_a_job_without_a_held_program_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert regatta("variables j1", {JOB: [ok(job())]})[0] == 1


def flames(*replicas: str) -> dict[str, Any]:
    stacks = {"MainThread;main;<step>": 3, "MainThread;main": 1}
    one = {"note": None, "samples": 4, "stacks": stacks, "memory": []}
    return {"attempt": 1, "seconds": 2.0, "replicas": [{"replica": name, **one} for name in replicas]}


def test_a_flame_graph_is_folded_text_that_tells_replicas_apart(capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"POST /api/v1/jobs/j1/flamegraph": [ok(flames("trainer-0", "trainer-1"))]}
    _, portal = regatta("flamegraph j1 -s 2 -r trainer-0 -r trainer-1", answer)
    assert portal.bodies() == [{"seconds": 2.0, "replicas": ["trainer-0", "trainer-1"]}]
    assert capsys.readouterr().out.splitlines()[:2] == [
        "trainer-0;MainThread;main;<step> 3", "trainer-0;MainThread;main 1",
    ]  # fmt: skip


def test_a_flame_graph_in_a_file_that_ends_with_svg_is_a_drawing(tmp_path: Path) -> None:
    place = tmp_path / "out.svg"
    regatta(f"flamegraph j1 -o {place}", {"POST /api/v1/jobs/j1/flamegraph": [ok(flames("trainer-0"))]})
    drawing = ElementTree.parse(place).getroot()
    titles = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert "<step>: 3 (75.0 %)" in titles


def test_open_prints_the_page_without_a_browser(capsys: pytest.CaptureFixture[str]) -> None:
    assert regatta("open j1", {JOB: [ok(job())]})[0] == 0
    assert capsys.readouterr().out.strip() == f"{SERVER}/n/ada/jobs/j1"


def test_quota_shows_readable_bytes_and_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"limits": {"cpu": 16, "memory": 2**34}, "used": {"cpu": 0.5, "memory": 0}, "reserved": {}, "headroom": {}}
    regatta("quota", {"GET /api/v1/namespaces/ada/quota": [ok(found)]})
    printed = capsys.readouterr().out
    assert "16.0 GiB" in printed
    assert "0.5" in printed


def test_a_new_token_is_alone_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    made = {"id": "t1", "name": "ci", "token": "rgt_new"}
    _, portal = regatta("token create ci --scope job:read --days 7", {"POST /api/v1/tokens": [ok(made, 201)]})
    assert capsys.readouterr().out == "rgt_new\n"
    assert portal.bodies() == [{"name": "ci", "scopes": ["job:read"], "days": 7}]


def test_contexts_are_listed_used_and_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    config.save(Settings("home", {"home": Context("http://home"), "work": Context("http://work")}))
    assert [regatta(f"config {deed}")[0] for deed in ("use work", "rm home", "use home")] == [0, 0, 2]
    regatta("config ls -o json")
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["work"]


def test_another_server_forgets_the_token_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    config.save(Settings("home", {"home": Context("http://home", "rgt_home")}))
    regatta("config set server http://other")
    assert config.load().contexts["home"] == Context("http://other")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert regatta(f"completion {shell}")[0] == 0
    assert "_REGATTA_COMPLETE" in capsys.readouterr().out


def test_artifacts_are_downloaded_into_a_folder_and_never_outside(tmp_path: Path) -> None:
    listed = {"artifacts": [{"name": "../evil", "size": 1, "sha256": "x"}]}
    code, _ = regatta("artifacts j1 --all --to out", {"GET /api/v1/jobs/j1/artifacts": [ok(listed)]})
    assert (code, (tmp_path / "evil").exists()) == (2, False)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (problem(429, "throttled", "Too many."), 6),
        (problem(500, "", ""), 6),
        (httpx.Response(200, content=b'{"results": ['), 6),
        (httpx.Response(200, content=b""), 6),
        (httpx.ReadError("nothing came"), 6),
        (problem(403, "forbidden", "No."), 1),
    ],
    ids=["429", "500", "half a body", "nothing", "no answer", "403"],
)
@pytest.mark.parametrize("command", ["jobs -n ada", "get j1", "logs -f j1", "wait j1", "data ls", "token ls", "ns ls"])
def test_no_response_crashes_a_command(
    command: str, answer: Answer, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("regatta.http.TRIES", 2)
    paths = ("namespaces/ada/jobs", "jobs/j1", "jobs/j1/logs", "datasets", "tokens", "namespaces")
    assert regatta(command, {f"GET /api/v1/{path}": [answer] for path in paths})[0] == code
    assert capsys.readouterr().err.startswith("regatta: ")
