"""The process of the controller: reflectors, leader election, workers, probes, and graceful shutdown."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from dataclasses import dataclass

from jobs.operator.client.api import KubeApi
from jobs.operator.run import health
from jobs.operator.run.controller import Clocks, Controller, Options
from jobs.operator.run.leader_election import EVERY, Election, Fenced

log = logging.getLogger(__name__)

_LEASE = "paddlejob-controller"


@dataclass(frozen=True)
class ProcessOptions:
    """Options of the process.

    ``lease_namespace``: the namespace of the Lease; empty: no election, this controller is the only one. ``host`` and
    ``port``: the address of probes and metrics.
    """

    lease_namespace: str = ""
    host: str = "0.0.0.0"  # noqa: S104  probes come from the node
    port: int = 8080


def serve(api: KubeApi, options: Options, process: ProcessOptions, stop: threading.Event) -> int:
    """Run until ``stop`` is set (exit code 0) or leadership is lost (1: restart the process). Sets ``stop`` at the end.

    Raises:
        OSError: the address of the probes is in use.
    """
    clocks = Clocks()
    election = _election(api, process, clocks)
    controller = Controller(Fenced(api, lambda: election.leads) if election else api, options, clocks)
    pages = {
        "/healthz": health.check(controller.unhealthy),
        "/readyz": health.check(controller.unready),
        "/metrics": lambda: (200, controller.metrics_text()),
    }
    with health.server(process.host, process.port, pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        log.info("probes and metrics at http://%s:%d", *server.server_address[:2])
        try:
            with controller.reflecting(stop):
                return _lead(controller, election, stop)
        finally:
            server.shutdown()


def _election(api: KubeApi, process: ProcessOptions, clocks: Clocks) -> Election | None:
    if not process.lease_namespace:
        return None
    identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    return Election(api, process.lease_namespace, _LEASE, identity, clocks.monotonic, clocks.now)


def _lead(controller: Controller, election: Election | None, stop: threading.Event) -> int:
    while not stop.is_set() and not (controller.synced and (election is None or election.campaign())):
        stop.wait(EVERY if election else 0.1)
    if stop.is_set():
        return 0
    log.info("leading")
    controller.metrics.leads.set(1)
    with controller.working(stop):
        while not stop.wait(EVERY):
            if election is not None and not election.campaign():
                log.error("leadership is lost")
                return 1
    if election is not None:
        election.resign()
    return 0
