"""Charts, logs and downloads over HTTP."""

from __future__ import annotations

import asyncio
import csv
import io
from typing import Any

import pytest
from django.test import AsyncClient

from jobs.api import streams as stream_api
from jobs.streams import rollups, store
from tests.factories import make_attempt, make_job
from tests.jobs.streams.conftest import Writer
from tests.personas import EVERYBODY, MEMBERS, Personas

PATHS = ("metrics", "metrics/points", "metrics.csv", "logs", "logs/download")


@pytest.fixture
def writer(personas: Personas) -> Writer:
    rollups.forget()
    return Writer(make_attempt(make_job(personas.namespace, personas.owner, attempt=1)))


def get(writer: Writer, personas: Personas, path: str, persona: str = "viewer", **query: Any) -> Any:
    return personas.client(persona).get(f"/api/v1/jobs/{writer.job.pk}/{path}", query)


def download(writer: Writer, personas: Personas, path: str, **query: Any) -> str:
    """Return the text that a browser downloads from the asynchronous server."""

    async def scenario() -> str:
        client = AsyncClient()
        await client.aforce_login(personas.viewer)
        answer = await client.get(f"/api/v1/jobs/{writer.job.pk}/{path}", query)
        return b"".join([piece async for piece in answer.streaming_content]).decode()

    return asyncio.run(scenario())


# --- Permissions -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["metrics", "metrics/points", "logs"])
@pytest.mark.parametrize("persona", EVERYBODY)
def test_members_see_strangers_do_not(writer: Writer, personas: Personas, path: str, persona: str) -> None:
    expected = {"stranger": 404, "nobody": 401}.get(persona, 200)
    assert get(writer, personas, path, persona).status_code == expected


@pytest.mark.parametrize("path", ["metrics.csv", "logs/download"])
@pytest.mark.parametrize(("persona", "status"), [("stranger", 404), ("nobody", 401)])
def test_strangers_download_nothing(writer: Writer, personas: Personas, path: str, persona: str, status: int) -> None:
    assert get(writer, personas, path, persona).status_code == status


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("persona", ["admin", *MEMBERS])
def test_members_download(writer: Writer, personas: Personas, persona: str) -> None:
    async def scenario() -> int:
        client = AsyncClient()
        await client.aforce_login(personas.user(persona))  # type: ignore[arg-type]
        return (await client.get(f"/api/v1/jobs/{writer.job.pk}/logs/download")).status_code

    assert asyncio.run(scenario()) == 200


# --- Charts ----------------------------------------------------------------------------------------------------------
def test_a_chart_has_the_shape_that_clients_rely_on(writer: Writer, personas: Personas) -> None:
    writer.points(1, 3)
    body = get(writer, personas, "metrics", keys="cost").json()
    assert body["next"] == 3
    assert body["series"]["cost"] == {
        "x": [1, 2, 3],
        "min": [1, 0.5, 1 / 3],
        "max": [1, 0.5, 1 / 3],
        "last": [1, 0.5, 1 / 3],
        "count": [1, 1, 1],
        "nan": [0, 0, 0],
    }


def test_a_chart_has_a_bounded_number_of_buckets_and_names_the_omitted_metrics(
    writer: Writer, personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_api, "MOST_IN_ALL", 200)
    points = [(1e9 + at, float(at), key, 1.0) for at, key in enumerate(["z", "y", "x", "z"])]
    store.append_metrics(job_id=writer.job.pk, attempt=writer.attempt, replica="trainer-9", first=1, points=points)
    chart = get(writer, personas, "metrics", replica="trainer-9", buckets=100).json()
    assert (list(chart["series"]), chart["left_out"]) == (
        ["y", "z"],
        ["x"],
    )  # in the order of names; z and y were the first
    rest = get(writer, personas, "metrics", replica="trainer-9", buckets=100, keys="x").json()
    assert (list(rest["series"]), rest["left_out"]) == (["x"], [])


def test_a_chart_is_cut_to_the_requested_range(writer: Writer, personas: Personas) -> None:
    writer.points(1, 100)
    body = get(writer, personas, "metrics", keys="cost", buckets="8", **{"from": "1", "to": "32"}).json()
    assert body["width"] == 4
    assert sum(body["series"]["cost"]["count"]) == 35


@pytest.mark.parametrize(
    "query", [{"x": "moon"}, {"buckets": "0"}, {"buckets": "many"}, {"from": "a"}, {"attempt": "0"}]
)
def test_an_invalid_chart_query_is_refused_beside_its_field(
    writer: Writer, personas: Personas, query: dict[str, str]
) -> None:
    answer = get(writer, personas, "metrics", **query)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, list(query))


def test_points_come_as_they_were_reported_after_a_cursor(writer: Writer, personas: Personas) -> None:
    writer.points(1, 5)
    first = get(writer, personas, "metrics/points", limit="3").json()
    second = get(writer, personas, "metrics/points", after=str(first["last"])).json()
    assert [point["value"] for point in [*first["points"], *second["points"]]] == [1, 0.5, 1 / 3, 0.25, 0.2]
    assert (first["more"], second["more"], second["last"]) == (True, False, 5)


def test_a_page_without_the_requested_points_moves_the_cursor(writer: Writer, personas: Personas) -> None:
    writer.points(1, 5)
    assert get(writer, personas, "metrics/points", keys="accuracy").json() == {"points": [], "last": 5, "more": False}


# --- Logs ------------------------------------------------------------------------------------------------------------
def test_lines_since_a_moment_are_those_that_were_printed_then_or_later(writer: Writer, personas: Personas) -> None:
    writer.lines(1, 5)
    page = get(writer, personas, "logs", since="1970-01-01T00:00:04Z").json()
    assert ([line["seq"] for line in page["lines"]], page["last"]) == ([4, 5], 5)


def test_a_page_of_lines_has_the_shape_that_clients_rely_on(writer: Writer, personas: Personas) -> None:
    writer.lines(1, 2)
    assert get(writer, personas, "logs").json() == {
        "lines": [
            {"seq": n, "time": float(n), "replica": "trainer-0", "stream": "stdout", "text": f"trainer-0 {n}"}
            for n in (1, 2)
        ],
        "first": 1,
        "last": 2,
        "more": False,
    }


def test_the_tail_is_the_last_lines(writer: Writer, personas: Personas) -> None:
    writer.lines(1, 20)
    body = get(writer, personas, "logs", after="-1", limit="5").json()
    assert [line["seq"] for line in body["lines"]] == [16, 17, 18, 19, 20]
    assert body["more"]


def test_lines_are_searched(writer: Writer, personas: Personas) -> None:
    writer.lines(1, 20)
    assert [line["seq"] for line in get(writer, personas, "logs", q="R-0 1", limit="3").json()["lines"]] == [1, 10, 11]
    assert [line["seq"] for line in get(writer, personas, "logs", regex=" [38]$").json()["lines"]] == [3, 8]


@pytest.mark.parametrize(
    ("field", "value"), [("regex", "("), ("after", "-2"), ("limit", "0"), ("limit", "999999"), ("before", "0")]
)
def test_an_invalid_page_query_is_refused_beside_its_field(
    writer: Writer, personas: Personas, field: str, value: str
) -> None:
    answer = get(writer, personas, "logs", **{field: value})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, [field])


# --- Downloads -------------------------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
def test_the_download_holds_every_line_in_order(writer: Writer, personas: Personas) -> None:
    for first in range(1, 100, 3):
        writer.lines(first, first + 2)
    writer.other("master-0").lines(1, 1)
    lines = download(writer, personas, "logs/download").splitlines()
    assert [line.split(" ", 3)[3] for line in lines] == [*(f"trainer-0 {n}" for n in range(1, 100)), "master-0 1"]
    assert lines[0] == "1970-01-01T00:00:01.000+00:00 trainer-0 stdout trainer-0 1"


@pytest.mark.django_db(transaction=True)
def test_no_metric_key_is_a_formula_in_the_table(writer: Writer, personas: Personas) -> None:
    key = '=HYPERLINK("http://example.org")'
    store.append_metrics(
        job_id=writer.job.pk, attempt=writer.attempt, replica="trainer-0", first=1, points=[(0.0, 1.0, key, -0.5)]
    )
    (row,) = csv.DictReader(io.StringIO(download(writer, personas, "metrics.csv")))
    assert (row["key"], row["value"]) == (f"'{key}", "-0.5")


@pytest.mark.django_db(transaction=True)
def test_the_table_holds_every_point(writer: Writer, personas: Personas) -> None:
    writer.points(1, 7)
    rows = list(csv.DictReader(io.StringIO(download(writer, personas, "metrics.csv"))))
    assert [(row["seq"], row["step"], row["key"], row["value"]) for row in rows] == [
        (str(n), f"{float(n)}", "cost", str(1 / n)) for n in range(1, 8)
    ]
