"""The load of rows X1 to X3: replicas that lose and double nothing, complete copies, and rows that claim no more than
was measured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps

from bench.load import at_scale, ended_jobs
from bench.load.replicas import Attempt, Stream, World
from jobs.models import Attempt as AttemptRow
from jobs.models import Job

Request = tuple[str, Any]


# --- Simulated replicas ----------------------------------------------------------------------------------------------
class Portal:
    """Ingest API in memory. It answers 503 to every second batch, after it has stored it."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.stored: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            call, body = head.split()[1].decode().rpartition("/")[2], json.loads(await reader.readexactly(length))
            status, answer = self._answer(call, body)
            content = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%b" % (status, len(content), content))

    def _answer(self, call: str, body: Any) -> tuple[int, Any]:
        self.requests.append((call, body))
        if call != "logs":
            return 200, {}
        fresh = body["lines"][len(self.stored) + 1 - body["first"] :]
        self.stored += [text for _, _, text in fresh]
        lost = sum(name == "logs" for name, _ in self.requests) % 2
        return (503, {}) if lost else (200, {"last": len(self.stored)})


def played(portal: Portal, until: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> World:
    """Run one trainer at a high pace until the condition holds, and stop it."""
    monkeypatch.setattr("bench.load.replicas._RETRY_SECONDS", 0.0)

    async def play() -> World:
        server = await asyncio.start_server(portal.serve, "127.0.0.1", 0)
        world = World([server.sockets[0].getsockname()[1]])
        world.speed([500.0, 0.0, 2.0], [0.0, 0.0, 60.0], speaking=1)
        world.launch("attempt", "token", ["trainer-0"])
        async with asyncio.timeout(100):
            while not until():
                await asyncio.sleep(0)
            world.stop("attempt")
            while world.changes(0)["attempts"]["attempt"][0][1] != "exited":
                await asyncio.sleep(0)
        server.close()
        return world

    return asyncio.run(play())


def test_a_simulated_replica_reports_its_phases_and_loses_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    portal = Portal()
    world = played(portal, lambda: len(portal.stored) > 200, monkeypatch)
    ((made, taken), _) = world.count()["attempts"]["attempt"]
    assert made == taken == len(portal.stored) == len(set(portal.stored))
    calls = [call for call, _ in portal.requests]
    assert calls[:3] == ["begin", "report", "report"]
    phases = [body["phase"] for call, body in portal.requests if call == "report"]
    assert phases == ["starting", "registered", "exited"]


def test_only_changes_are_sent_to_the_backend() -> None:
    world = World([1])
    world._attempts["a"] = Attempt("a", "token", 0, ["trainer-0"], world)
    world.changed(world._attempts["a"])
    seen = world.changes(0)
    assert seen["attempts"] == {"a": [("trainer-0", "starting", None)]}
    assert world.changes(seen["version"])["attempts"] == {}
    world.cleanup("a")
    assert world.changes(seen["version"])["attempts"] == {"a": None}


def test_accepted_entries_are_not_sent_again() -> None:
    stream = Stream()
    for number in range(1, 6):
        stream.add(number)
    stream.accept(3)
    assert (stream.waiting, stream.taken, stream.made) == ([4, 5], 3, 5)


# --- Ended jobs ------------------------------------------------------------------------------------------------------
def test_all_tables_with_rows_of_a_job_are_copied() -> None:
    copied = {Job, *ended_jobs._with_key_to(Job), *ended_jobs._with_key_to(AttemptRow)}
    related = {
        model
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        if field.is_relation and field.related_model in (Job, AttemptRow)
    }
    assert related <= copied


def test_a_copy_has_ids_of_its_own_and_an_earlier_time() -> None:
    statement = ended_jobs._insert(AttemptRow, "t.job_id = %(job)s", {"id", "job_id"})
    assert 'md5(t."id"::text || n)::uuid, md5(t."job_id"::text || n)::uuid, t."number"' in statement
    assert "t.\"created\" - n * interval '5 seconds'" in statement


# --- Rows ------------------------------------------------------------------------------------------------------------
def test_a_part_of_the_row_is_never_reached_however_good_its_figure() -> None:
    assert at_scale.JOBS < at_scale.FULL_JOBS
    assert not at_scale._row("X1", "case", 0.0, 500.0, "note").met


def test_the_straight_line_through_two_sizes_is_extrapolated() -> None:
    assert at_scale.at_full((50, 30.0), (100, 50.0), 1000) == 410.0
    assert at_scale.at_full((2, 30.0), (2, 31.0), 1000) == 31.0


@pytest.mark.parametrize(
    ("values", "expected"), [([], float("inf")), ([1.0], 1.0), (list(map(float, range(101))), 99.0)]
)
def test_a_percentile_of_nothing_is_no_good_figure(values: list[float], expected: float) -> None:
    assert at_scale.percentile(values, 0.99) == expected


def test_the_cost_of_the_full_row_follows_from_that_of_a_call() -> None:
    """Not from the number of jobs: a machine that is too slow makes fewer calls than they would."""
    slow = at_scale.Window(1, 10.0, 0.0, 1.0, 0.06, 0.0, 0.04, {})
    assert at_scale.cost_of_calls([slow]).endswith("10 ms at 10 calls/s; 14,833 calls/s take 148 cores")
