from __future__ import annotations

import json
import stat
from pathlib import Path

import httpx
import pytest

from regatta import config
from regatta.cli import main
from regatta.config import Context, Settings
from regatta.session import Outside
from tests.client.portal import SERVER, Answer, PaperPortal, job, lines, ok, problem

JOB, LOGS = "GET /api/v1/jobs/j1", "GET /api/v1/jobs/j1/logs"
SUBMIT = "POST /api/v1/namespaces/ada/jobs"
ME = {"username": "ada", "is_admin": False, "namespaces": [{"name": "ada", "role": "owner"}]}


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv(config.SERVER, SERVER)
    monkeypatch.setenv(config.TOKEN, "rgt_x")
    monkeypatch.setattr("regatta.http.BACKOFF_SECONDS", 0.0)
    monkeypatch.setattr("regatta.resources.jobs.POLL_SECONDS", 0.0)
    monkeypatch.setattr("regatta.resources.streams.POLL_SECONDS", 0.0)
    return tmp_path / "config" / "regatta" / "config.yaml"


def run(arguments: str, answers: dict[str, list[Answer]]) -> int:
    return call(arguments.split(), PaperPortal(answers))


def call(arguments: list[str], portal: PaperPortal) -> int:
    return main(arguments, Outside(portal, sleep=lambda _seconds: None, browse=lambda _page: False))


@pytest.mark.parametrize(
    ("arguments", "answers", "code"),
    [
        ("whoami", {"GET /api/v1/me": [ok(ME)]}, 0),
        ("whoami", {"GET /api/v1/me": [problem(401, "not_signed_in", "The token is not known.")]}, 3),
        ("whoami", {"GET /api/v1/me": [httpx.ConnectError("refused")]}, 6),
        ("whoami", {"GET /api/v1/me": [problem(500, "error", "broken")]}, 6),
        ("get j1", {JOB: [ok(job("FAILED"))]}, 0),
        ("get nosuch", {}, 4),
        ("get", {}, 2),
        ("nonsense", {}, 2),
        ("submit", {}, 2),
        ("submit nosuch.yaml", {}, 2),
        ("wait j1", {JOB: [ok(job()), ok(job("SUCCEEDED"))]}, 0),
        ("wait j1", {JOB: [ok(job("FAILED"))]}, 100),
        ("wait j1", {JOB: [ok(job("CANCELLED"))]}, 103),
        ("wait j1 --timeout 0", {JOB: [ok(job())]}, 101),
        ("wait j1", {JOB: [ok(job()), httpx.ReadError("cut")]}, 6),
        ("logs --after 0 j1", {LOGS: [ok(lines(1))]}, 0),
        ("logs -f j1", {JOB: [ok(job("SUCCEEDED"))], LOGS: [ok(lines(1))]}, 0),
        ("logs -f j1", {JOB: [ok(job("FAILED"))], LOGS: [ok(lines(1))]}, 100),
        ("logs -f j1", {JOB: [ok(job())], LOGS: [ok(lines(1)), httpx.ReadError("cut")]}, 6),
        ("logs -f j1", {JOB: [ok(job()), KeyboardInterrupt()], LOGS: [ok(lines(1))]}, 130),
        ("cancel j1", {"POST /api/v1/jobs/j1/cancel": [problem(409, "conflict", "It has ended.")]}, 1),
    ],
)
def test_the_exit_code(arguments: str, answers: dict[str, list[Answer]], code: int) -> None:
    assert run(arguments, answers) == code


def test_over_quota_is_5_with_the_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = job_file(tmp_path)
    answers: dict[str, list[Answer]] = {SUBMIT: [problem(409, "quota_exceeded", "It needs 99 cpu; the limit is 16.")]}
    assert call(["submit", str(file), "-n", "ada", "-d"], PaperPortal(answers)) == 5
    assert "needs 99 cpu" in capsys.readouterr().err


def test_every_wrong_field_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = problem(422, "validation_failed", "No.", errors={"passes": ["It must be at least 1."]})
    assert call(["submit", str(job_file(tmp_path)), "-n", "ada", "-d"], PaperPortal({SUBMIT: [refused]})) == 1
    assert "passes: It must be at least 1." in capsys.readouterr().err


def job_file(directory: Path) -> Path:
    (directory / "train.py").write_text("print('hello')\n")
    file = directory / "job.yaml"
    file.write_text("name: digits\nentrypoint: train.py\n")
    return file


def test_the_only_refusal_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    why = "path: 'a\\nb' cannot be a name: it holds a character that cannot be seen"
    refused = problem(422, "validation_failed", why, errors={"path": [why.removeprefix("path: ")]})
    assert run("whoami", {"GET /api/v1/me": [refused]}) == 1
    assert capsys.readouterr().err.count("cannot be a name") == 1


def test_submit_prints_the_id_alone_and_sends_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    portal = PaperPortal({SUBMIT: [ok(job("QUEUED"), 201)]})
    assert call(["submit", str(job_file(tmp_path)), "-n", "ada", "--trainers", "3", "-d"], portal) == 0
    assert capsys.readouterr().out == "j1\n"
    assert portal.bodies()[0] == {
        "name": "digits",
        "entrypoint": "train.py",
        "files": {"train.py": "print('hello')\n"},
        "roles": {"trainer": {"replicas": 3}},
    }


def test_an_example_is_submitted_by_name() -> None:
    examples = ok({"results": [{"name": "digits", "title": "Recognise digits", "spec": {"name": "digits"}}]})
    portal = PaperPortal({"GET /api/v1/examples": [examples], SUBMIT: [ok(job("QUEUED"), 201)]})
    assert call(["submit", "--example", "digits", "-n", "ada", "-d"], portal) == 0
    assert portal.bodies() == [{"name": "digits"}]


def test_login_stores_the_token_readable_by_its_owner_alone(
    own_configuration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(config.TOKEN)
    portal = PaperPortal({"POST /api/v1/auth/token": [ok({"token": "rgt_new"}, 201)], "GET /api/v1/me": [ok(ME)]})
    assert call(["login", "-u", "ada", "--password", "pass phrase"], portal) == 0
    assert config.load().contexts == {"default": Context(SERVER, "rgt_new")}
    assert stat.S_IMODE(own_configuration.stat().st_mode) == 0o600


def test_login_stores_no_invalid_token(own_configuration: Path) -> None:
    assert run("login --token rgt_bad", {"GET /api/v1/me": [problem(401, "not_signed_in", "Not known.")]}) == 3
    assert not own_configuration.exists()


def test_logout_revokes_the_token_and_forgets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(config.TOKEN)
    config.save(Settings("default", {"default": Context(SERVER, "rgt_x")}))
    portal = PaperPortal({"DELETE /api/v1/tokens/current": [httpx.Response(204)]})
    assert call(["logout"], portal) == 0
    assert portal.asked[0].headers["Authorization"] == "Bearer rgt_x"
    assert config.load().contexts["default"].token == ""


def test_without_a_token_the_answer_is_to_sign_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(config.TOKEN)
    assert run("jobs", {}) == 3
    assert "regatta login" in capsys.readouterr().err


def test_a_broken_configuration_is_an_error(own_configuration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_configuration.parent.mkdir(parents=True)
    own_configuration.write_text("[")
    assert run("jobs", {}) == 2
    assert "regatta login" in capsys.readouterr().err


def test_text_of_users_is_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    listing = ok({"results": [job("FAILED", why="raised [red]KeyError[/]")], "next": None})
    assert run("jobs -n ada", {"GET /api/v1/namespaces/ada/jobs": [listing]}) == 0
    assert "raised [red]KeyError[/]" in capsys.readouterr().out


def test_json_is_the_portals_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("get j1 -o json", {JOB: [ok(job(later="field"))]}) == 0
    assert json.loads(capsys.readouterr().out)["later"] == "field"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "is not valid YAML"),
        ("- just\n- a list", "is not a job specification"),
        ("entrypoint: lost.py", "lost.py cannot be read"),
        ("files: [job.yaml, lost.py]", "lost.py cannot be read"),
    ],
)
def test_a_bad_job_file_is_usage(tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text(text)
    assert call(["submit", str(tmp_path / "job.yaml"), "-n", "ada", "-d"], PaperPortal({})) == 2
    assert message in capsys.readouterr().err
