"""The context of log lines: facts of a request reach its threads, and end with it."""

from __future__ import annotations

import asyncio

from portal.common.monitoring import log_context


def test_outside_any_work_nothing_is_known_and_nothing_is_kept() -> None:
    log_context.note(job="j1")
    assert log_context.current().fields() == {}


def test_a_block_adds_facts_and_restores_the_outer_ones() -> None:
    with log_context.use(request_id="r1"):
        with log_context.use(job="j1", attempt=2):
            assert log_context.current().fields() == {"request_id": "r1", "job": "j1", "attempt": 2}
        assert log_context.current().fields() == {"request_id": "r1"}


def test_facts_that_a_thread_notes_are_known_to_its_request() -> None:
    async def request() -> int | None:
        with log_context.use(request_id="r1") as context:
            await asyncio.to_thread(log_context.note, user=7)
            return context.user

    assert asyncio.run(request()) == 7


def test_two_requests_at_once_keep_their_facts_apart() -> None:
    async def request(name: str, both: asyncio.Barrier) -> str:
        with log_context.use(request_id=name):
            await both.wait()
            log_context.note(job=name)
            await both.wait()
            return log_context.current().job

    async def both() -> list[str]:
        barrier = asyncio.Barrier(2)
        return await asyncio.gather(request("a", barrier), request("b", barrier))

    assert asyncio.run(both()) == ["a", "b"]
