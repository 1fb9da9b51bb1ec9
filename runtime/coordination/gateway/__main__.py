"""``python -m runtime.coordination.gateway``: run the gateway until SIGTERM. Settings are in the environment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import grpc.aio

from runtime.coordination.gateway import health
from runtime.coordination.gateway.lease_ids import LeaseIds
from runtime.coordination.gateway.service import Gateway
from runtime.coordination.gateway.settings import SERVERS, Settings, SettingsInvalid
from runtime.coordination.gateway.upstream import Upstream

# Exit code of a start that cannot succeed until a setting or the machine is changed.
EXIT_SETTINGS = 2
_END_SECONDS = 3.0
_OPTIONS = (
    # Beyond the largest request that is passed on: etcd's text reports those in between.
    ("grpc.max_receive_message_length", 2 * 1024 * 1024),
    ("grpc.max_metadata_size", 8 * 1024),
    ("grpc.max_concurrent_streams", 256),  # per connection
    # Agents send a ping every ten seconds, also without a call.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A pod that disappeared silently.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),
)
_CALLS_AT_ONCE = 16_000  # of all accounts, open streams included


def main() -> int:
    try:
        settings = Settings.read(os.environ)
    except SettingsInvalid as error:
        return _refuse(str(error))
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    try:
        upstream = Upstream(settings.site)
    except OSError as error:
        return _refuse(f"The certificates that {SERVERS} names cannot be read: {error.strerror or error}.")
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_CALLS_AT_ONCE)
    gateway = Gateway(settings.site, upstream, LeaseIds(settings.key), settings.limits, settings.held_seconds)
    server.add_generic_rpc_handlers((gateway,))
    try:
        server.add_insecure_port(settings.listen)
        await server.start()
        probes = await health.serve(settings.health)
    except (OSError, RuntimeError) as error:
        return _refuse(f"{settings.listen} or {settings.health} cannot be used: {error}. Is the port taken?")
    sys.stderr.write(f"The coordination gateway listens on {settings.listen}.\n")
    ending_leases = asyncio.create_task(gateway.lease_ending.run())
    await _asked_to_end()
    ending_leases.cancel()
    probes.close()  # no new agent comes while those that are there are answered
    await server.stop(_END_SECONDS)
    await upstream.close()
    return 0


async def _asked_to_end() -> None:
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    await asked.wait()


def _refuse(message: str) -> int:
    sys.stderr.write(message + "\n")
    return EXIT_SETTINGS


if __name__ == "__main__":
    sys.exit(main())
