"""The pool of database connections, with connections that are objects of the test."""

from __future__ import annotations

import gc
import threading

import pytest

from portal.common.postgresql.pool import IDLE_SECONDS, LIFETIME_SECONDS, Pool, PoolFull


class Link:
    """A connection that works until its server closes it."""

    def __init__(self) -> None:
        self.works = True
        self.closed = False


class Server:
    """Opens connections, and closes all at once as a restart does. ``refuses`` is what it answers instead."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.refuses: Exception | None = None

    def connect(self) -> Link:
        if self.refuses:
            raise self.refuses
        self.links.append(Link())
        return self.links[-1]

    def restart(self) -> None:
        for link in self.links:
            link.works = False

    @property
    def open(self) -> int:
        return sum(not link.closed for link in self.links)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _close(link: Link) -> None:
    link.closed = True


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> Pool[Link]:
    return Pool(2, lambda link: link.works and not link.closed, _close, clock)


def test_a_returned_connection_is_used_again(pool: Pool[Link], server: Server) -> None:
    first = pool.take(server.connect)
    pool.give_back(first, is_clean=True)
    assert pool.take(server.connect) is first


def test_two_threads_never_have_the_same_connection(pool: Pool[Link], server: Server) -> None:
    assert pool.take(server.connect) is not pool.take(server.connect)


@pytest.mark.invariant("A process opens at most REGATTA_DATABASE_POOL_SIZE connections to PostgreSQL.")
def test_a_full_pool_opens_no_connection(pool: Pool[Link], server: Server) -> None:
    taken = [pool.take(server.connect), pool.take(server.connect)]
    with pytest.raises(PoolFull, match="all 2 connections"):
        pool.take(server.connect, wait_seconds=0)
    assert (len(server.links), pool.taken) == (2, len(taken))


def test_a_thread_that_waits_gets_the_connection_that_is_returned(pool: Pool[Link], server: Server) -> None:
    first, _second = pool.take(server.connect), pool.take(server.connect)
    got: list[Link] = []
    waiting = threading.Thread(target=lambda: got.append(pool.take(server.connect, wait_seconds=1e6)))
    waiting.start()
    pool.give_back(first, is_clean=True)
    waiting.join(30)
    assert got == [first]


def test_a_refused_connection_raises_the_reason_and_leaves_its_place(pool: Pool[Link], server: Server) -> None:
    server.refuses = ConnectionRefusedError("no server")
    for _ in range(5):
        with pytest.raises(ConnectionRefusedError, match="no server"):
            pool.take(server.connect)
    assert pool.open == 0


@pytest.mark.invariant("The first query after a restart of PostgreSQL meets no connection from before it.")
def test_after_a_restart_the_first_call_gets_a_new_connection(pool: Pool[Link], server: Server) -> None:
    old = [pool.take(server.connect), pool.take(server.connect)]
    for link in old:
        pool.give_back(link, is_clean=True)
    server.restart()
    assert pool.take(server.connect).works
    assert ([link.closed for link in old], pool.open) == ([True, True], 1)


def test_a_connection_that_broke_in_use_condemns_those_from_before(pool: Pool[Link], server: Server) -> None:
    broken, idle = pool.take(server.connect), pool.take(server.connect)
    pool.give_back(idle, is_clean=True)
    broken.works = False
    pool.give_back(broken, is_clean=False)
    assert (idle.closed, pool.open) == (True, 0)


def test_an_error_of_a_statement_closes_its_own_connection_only(pool: Pool[Link], server: Server) -> None:
    failed, idle = pool.take(server.connect), pool.take(server.connect)
    pool.give_back(idle, is_clean=True)
    pool.give_back(failed, is_clean=False)
    assert (failed.closed, idle.closed) == (True, False)


def test_a_connection_is_closed_at_the_end_of_its_lifetime(pool: Pool[Link], server: Server, clock: Clock) -> None:
    link = pool.take(server.connect)
    clock.now += LIFETIME_SECONDS
    pool.give_back(link, is_clean=True)
    assert (link.closed, pool.open) == (True, 0)


def test_connections_that_are_not_needed_any_more_are_closed(pool: Pool[Link], server: Server, clock: Clock) -> None:
    one, other = pool.take(server.connect), pool.take(server.connect)
    pool.give_back(one, is_clean=True)
    clock.now += IDLE_SECONDS + 1
    pool.give_back(other, is_clean=True)
    assert (one.closed, other.closed, pool.open) == (True, False, 1)


def test_a_thread_that_ends_with_its_connection_leaves_the_place(pool: Pool[Link], server: Server) -> None:
    pool.take(server.connect)
    server.links.clear()
    gc.collect()
    assert (pool.open, pool.taken) == (0, 0)


def test_connections_in_use_are_closed_when_they_are_returned_after_all_were_closed(
    pool: Pool[Link], server: Server
) -> None:
    link = pool.take(server.connect)
    pool.close_idle()
    pool.give_back(link, is_clean=True)
    assert (link.closed, server.open) == (True, 0)


def test_many_threads_share_two_connections(pool: Pool[Link], server: Server) -> None:
    def work() -> None:
        for _ in range(200):
            pool.give_back(pool.take(server.connect, wait_seconds=1e6), is_clean=True)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(server.links) <= 2, pool.taken, pool.open) == (True, 0, len(server.links))
