"""Hints for the worker on a real Redis as Celery's broker, while it is lost, silent or full."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs import tasks
from tests.servers.redis_server import RedisServer
from tests.waiting import until

pytestmark = [pytest.mark.redis, pytest.mark.processes]

ROOT = Path(__file__).parents[2]
# Handing a hint to a thread. The machine may be busy.
HINT_SECONDS = 0.5
# A process that ends waits for one second at most.
EXIT_SECONDS = 10.0
_SENDER = """
import sys, time
import django
django.setup()
from jobs import tasks
for line in sys.stdin:
    began = time.monotonic()
    tasks._send(line.strip())
    print(time.monotonic() - began, flush=True)
"""


class Sender:
    """A process that sends hints, such as a web process."""

    def __init__(self, url: str, data: Path) -> None:
        self._errors = data / "errors"
        environment = os.environ | {"REGATTA_BROKER_URL": url, "REGATTA_DATA_DIR": str(data)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SENDER],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors.open("w"),
            text=True,
        )

    def errors(self) -> str:
        return self._errors.read_text()

    def send(self, job: str) -> float:
        """Send a hint; return the seconds that the caller waited."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{job}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(EXIT_SECONDS)


@pytest.fixture
def sender(fragile_redis: RedisServer, tmp_path: Path) -> Iterator[Sender]:
    made = Sender(fragile_redis.url(database=0), tmp_path)
    yield made
    made.process.kill()
    made.process.wait()


def waiting(server: RedisServer) -> int:
    """Return the number of Celery messages that wait for a worker."""
    return int(server.client(database=0).llen("celery"))


@pytest.mark.invariant("A hint never waits for the broker and never fails, whether it is lost, silent or full.")
@pytest.mark.parametrize(
    ("harm", "repair"),
    [
        (RedisServer.kill, RedisServer.start),
        (RedisServer.freeze, RedisServer.thaw),
        (RedisServer.fill, RedisServer.empty),
    ],
)
def test_a_hint_does_not_wait_for_the_broker_and_arrives_again_after_an_outage(
    harm: Callable[[RedisServer], None],
    repair: Callable[[RedisServer], None],
    fragile_redis: RedisServer,
    sender: Sender,
) -> None:
    sender.send("first")
    until("the first hint arrives", lambda: waiting(fragile_redis) == 1)
    harm(fragile_redis)
    assert max(sender.send(str(number)) for number in range(10)) < HINT_SECONDS
    repair(fragile_redis)
    before = waiting(fragile_redis)
    until("hints arrive again", lambda: sender.send("again") and waiting(fragile_redis) > before)


def test_hints_are_dropped_while_too_many_wait_and_are_sent_again_once_a_worker_has_taken_them(
    fragile_redis: RedisServer, sender: Sender
) -> None:
    queue = fragile_redis.client(database=0)
    queue.rpush("celery", *range(tasks.MOST_WAITING))
    until("hints are dropped", lambda: sender.send("lost") and sender.errors().count("messages wait for the worker"))
    assert waiting(fragile_redis) == tasks.MOST_WAITING
    queue.ltrim("celery", 0, 9)
    until("hints arrive again", lambda: sender.send("again") and waiting(fragile_redis) > 10)
    assert sender.errors().count("messages wait for the worker") == 1


def test_a_process_ends_while_the_broker_is_silent(fragile_redis: RedisServer, sender: Sender) -> None:
    fragile_redis.freeze()
    sender.send("lost")
    sender.end()
    assert sender.process.returncode == 0
