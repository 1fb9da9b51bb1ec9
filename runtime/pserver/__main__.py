"""The process of a parameter server: ``python -m runtime.pserver``."""

from __future__ import annotations

import logging
import signal
import sys
import threading

from runtime import contract
from runtime.channel import Channel
from runtime.protocol.frames import job_crc
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard
from runtime.pserver.slots import even_table

log = logging.getLogger("pserver")


def main() -> int:
    """Serve until SIGTERM (exit 0), or until the lease is lost (exit 75)."""
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    environment = contract.read()
    channel = Channel.from_environment()
    shard = Shard(environment.index, even_table(environment.pservers), environment.trainers)
    server = ShardServer(shard, job_crc(environment.job_id, environment.attempt))
    ended = threading.Event()
    fenced: list[str] = []

    def fence(why: str) -> None:
        fenced.append(why)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server.start()
    channel.on_fenced(fence)
    channel.on_members(server.change_members)
    channel.hello(server.address)
    ended.wait()
    log.info("ending at version %d%s", shard.version, f": {fenced[0]}" if fenced else "")
    server.close()
    channel.close()
    return contract.EXIT_RESTART if fenced else contract.EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
