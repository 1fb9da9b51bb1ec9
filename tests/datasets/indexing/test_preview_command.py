"""``regatta data preview`` and ``data uses`` against the portal itself."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from django.test import Client

from datasets.indexing import indexing
from regatta import config
from regatta.cli import main
from regatta.session import Outside
from tests.datasets.conftest import Uploader
from tests.factories import make_job, make_token
from tests.personas import Personas

pytestmark = pytest.mark.django_db
CSV = b"height,name\n1.5,ada\n2,\n"


class InProcess(httpx.BaseTransport):
    """Transport to the portal in this process."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        answer = Client().generic(request.method, path, request.read(), headers=dict(request.headers))
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content)


def regatta(arguments: str) -> int:
    return main(arguments.split(), Outside(InProcess(), sleep=lambda _seconds: None, browse=lambda _page: False))


@pytest.fixture(autouse=True)
def signed_in(personas: Personas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv(config.SERVER, "http://testserver")
    monkeypatch.setenv(config.TOKEN, make_token(personas.viewer))


def test_the_first_records_are_a_table_with_the_totals(uploader: Uploader, capsys: pytest.CaptureFixture[str]) -> None:
    uploader.upload("train.csv", CSV)
    indexing.index(uploader.seal().pk)
    assert regatta("data preview team/mine") == 0
    output = capsys.readouterr()
    assert [line.split() for line in output.out.splitlines()] == [["height", "name"], ["1.5", "ada"], ["2"]]
    assert "team/mine@1: csv, records 2, chunks 1, files 1, 23 B. The first of train.csv:" in output.err
    assert regatta("data preview team/mine --limit 1 -o json") == 0
    assert json.loads(capsys.readouterr().out)["records"] == [["1.5", "ada"]]


def test_a_shipped_dataset_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert regatta("data preview public/digits --limit 3") == 0
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 4 and "records 1,797, chunks 25, files 2" in output.err


def test_without_a_sealed_version_it_prints_what_to_do(uploader: Uploader, capsys: pytest.CaptureFixture[str]) -> None:
    assert regatta("data preview team/mine") == 1
    assert "has no sealed version yet" in capsys.readouterr().err
    assert regatta("data preview team/mine --version 7") == 4


# --- Uses ------------------------------------------------------------------------------------------------------------
def test_the_jobs_that_use_a_dataset_are_listed(personas: Personas, capsys: pytest.CaptureFixture[str]) -> None:
    make_job(personas.namespace, personas.developer, name="ours", spec={"dataset": "public/digits"})
    assert regatta("data uses public/digits") == 0
    head, job = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "JOB" and job.split()[0] == "ours"
    assert regatta("data uses public/digits -o json") == 0
    assert json.loads(capsys.readouterr().out)[0]["owner"] == "developer"
    assert regatta("data uses public/nothing") == 4


def test_a_dataset_without_jobs_is_reported_as_such(uploader: Uploader, capsys: pytest.CaptureFixture[str]) -> None:
    assert regatta("data uses team/mine") == 0
    output = capsys.readouterr()
    assert "No jobs found that use it." in output.out + output.err
