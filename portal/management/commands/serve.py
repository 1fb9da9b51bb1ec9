"""``manage.py serve``: the web process, on sockets that the supervisor of ``manage.py up`` has opened or its own."""

from __future__ import annotations

import signal
import socket
import sys
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from portal.common.monitoring.metrics import Process
from portal.http.direct_body import http_protocol
from portal.operations import tracing
from portal.operations.serving import always_alive, serve
from portal.preflight import CannotStart, listen_all
from portal.system.heartbeats import Reporter

_PING_SECONDS = 20
_GRACE_SECONDS = 2


class Command(BaseCommand):
    help = (
        "Serve pages, API, ingest and sockets, on REGATTA_HOST and PORT (and REGATTA_AGENT_PORT) or inherited sockets."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--fd", type=int, action="append", default=[], help="number of an inherited listening socket; repeatable"
        )
        parser.add_argument("--operations-port", type=int, help="instead of REGATTA_OPERATIONS_PORT")

    def handle(self, *args: Any, fd: list[int], operations_port: int | None, **options: Any) -> None:
        serve(Process.WEB, (always_alive,), port=operations_port)
        stop_tracing = tracing.start(Process.WEB)
        configuration = uvicorn.Config(
            "portal.asgi:application",
            http=http_protocol(direct=settings.DIRECT_BODIES),
            ws="websockets-sansio",
            ws_ping_interval=_PING_SECONDS,
            ws_ping_timeout=_PING_SECONDS,
            lifespan="off",
            access_log=False,
            # The settings configure the loggers, and portal.http.access writes the access log.
            log_config=None,
            log_level="warning",
            timeout_graceful_shutdown=_GRACE_SECONDS,
            # portal.common.proxy_middleware alone decides which proxy headers to trust.
            proxy_headers=False,
            server_header=False,
        )
        # The address family is read from the socket: the event loop sets TCP_NODELAY only on a socket of known family.
        listeners = [socket.socket(fileno=number) for number in fd] or _listening()
        # uvicorn raises the signal again after its orderly end; by default that would kill the process at once.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        reporter = Reporter("web")
        reporter.start()
        try:
            uvicorn.Server(configuration).run(sockets=listeners)
        finally:
            reporter.stop()
            stop_tracing()


def _listening() -> list[socket.socket]:
    try:
        return listen_all(settings.HOST, settings.PORT, settings.AGENT_PORT)
    except CannotStart as reason:
        raise CommandError(str(reason)) from None
