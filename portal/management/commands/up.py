"""``manage.py up``: the whole portal on this machine, in one foreground process that supervises all others."""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from jobs.backends.local import isolation
from portal.bytecode import compile_in_background
from portal.common.monitoring.metrics import Process
from portal.operations.migrating import StillLocked, migrate
from portal.operations.serving import OFFSETS
from portal.preflight import CannotStart, check_redis, listen_all, lock_data_directory
from portal.private_files import open_to_others
from portal.supervisor import INTERRUPT_SECONDS, Supervisor, write_line
from portal.supervisor import Command as Child
from rbac.models import User
from rbac.services import create_user

ADMIN = "admin"
# The controller is stopped last but one: it has no part in an orderly stop, because jobs on a cluster continue.
_STOP_ORDER = (("sweep", "worker", "pods"), ("web",))


class Command(BaseCommand):
    help = "Start the portal: web, worker and sweep under one supervisor. Ctrl-C stops everything."
    # The checks of the framework run in `make check`; here they would cost start-up time.
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            lock = lock_data_directory(settings.DATA_DIR)
            listeners = listen_all(settings.HOST, settings.PORT, settings.AGENT_PORT)
            redis_lines = check_redis(redis_settings())
        except CannotStart as reason:
            raise CommandError(str(reason)) from None
        for path, mode in open_to_others(settings.DATA_DIR):
            write_line(
                f"{path} has mode {mode:04o}: other accounts of this machine can use it. Take that away from them."
            )
        for line in redis_lines:
            write_line(line)
        with lock, contextlib.ExitStack() as closing:
            for listener in listeners:
                closing.enter_context(listener)
                listener.set_inheritable(True)
            if problem := isolation.start_problem():
                raise CommandError(problem)
            if problem := isolation.prepare_cgroups():
                write_line(problem)
            if line := isolation.start_line():
                write_line(line)
            try:
                migrate(write_line)
            except StillLocked as reason:
                raise CommandError(str(reason)) from None
            ensure_admin()
            if settings.CLUSTER_BACKEND == "local":
                compile_in_background(settings.BASE_DIR / "runtime")
            _supervisor(tuple(listener.fileno() for listener in listeners)).run()
            isolation.remove_cgroups()


def redis_settings() -> dict[str, str]:
    """Return the settings that may name a Redis, by their variables."""
    return {"REGATTA_REDIS_URL": settings.REDIS_URL, "REGATTA_BROKER_URL": settings.BROKER_URL}


def ensure_admin() -> None:
    """Open the account ``admin`` at the first start; print its password once, unless the operator chose it."""
    if User.objects.filter(username=ADMIN).exists():
        return
    chosen = os.environ.get("REGATTA_ADMIN_PASSWORD", "")
    password = chosen or secrets.token_urlsafe(12)
    create_user(username=ADMIN, password=password, admin=True, any_password=True, actor=None)
    described = (
        "the password in REGATTA_ADMIN_PASSWORD" if chosen else f"the password {password} (shown only this once)"
    )
    write_line(f"Sign in as {ADMIN} with {described}.")


def _supervisor(listeners: tuple[int, ...]) -> Supervisor:
    # The password is for this process alone; its child processes do not need it.
    os.environ.pop("REGATTA_ADMIN_PASSWORD", None)
    os.environ["PYTHONUNBUFFERED"] = "1"
    manage = (sys.executable, str(settings.BASE_DIR / "manage.py"))
    children = {
        "web": Child(
            (*manage, "serve", *(f"--fd={number}" for number in listeners), *_operations(Process.WEB)),
            inherit=listeners,
        ),
        "worker": Child((*manage, "work", *_operations(Process.WORKER))),
        "sweep": Child((*manage, "sweep", *_operations(Process.SWEEP))),
        **_controller(),
    }
    return Supervisor(
        children,
        stop_order=_STOP_ORDER,
        is_ready=_answers,
        on_ready=lambda: write_line(f"Regatta is ready at {_address()} (Ctrl-C stops it)"),
        interrupt=_interrupt,
    )


def _operations(process: Process) -> tuple[str, ...]:
    """Processes of one machine need a port each."""
    port = settings.OPERATIONS_PORT
    return ("--operations-port", str(port + OFFSETS[process])) if port else ()


def _controller() -> dict[str, Child]:
    """The controller of PaddleJobs, for jobs on a cluster that has no controller of its own."""
    if settings.CLUSTER_BACKEND != "kubernetes" or not settings.KUBERNETES_CONTROLLER:
        return {}
    where = ("--kubeconfig", settings.KUBECONFIG) if settings.KUBECONFIG else ()
    # Other portals of the cluster have their own controllers.
    mine = ("--namespace-prefix", settings.KUBERNETES_PREFIX) if settings.KUBERNETES_PREFIX else ()
    command = (sys.executable, "-m", "jobs.operator", "run", *where, *mine, "--lost-seconds", "30")
    return {"pods": Child((*command, "--listen", "127.0.0.1:0", "--log-level", "warning"))}


def _address() -> str:
    host = f"[{settings.HOST}]" if ":" in settings.HOST else settings.HOST
    return f"http://{host}:{settings.PORT}"


def _answers() -> bool:
    """Return whether ``/healthz`` succeeds, requested as by a proxy: with a host name that the portal accepts."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.HOST, settings.HOST)  # noqa: S104
    known = next((name for name in settings.ALLOWED_HOSTS if not name.startswith(("*", "."))), "localhost")
    connection = http.client.HTTPConnection(reachable, settings.PORT, timeout=0.25)
    try:
        connection.request("GET", "/healthz", headers={"Host": known})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _interrupt() -> None:
    from jobs.reconcile.shutdown import interrupt_all

    interrupt_all(seconds=INTERRUPT_SECONDS - 0.5)
