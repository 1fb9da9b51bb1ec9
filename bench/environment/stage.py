"""Database with accounts and a running job, and one web process on it, for the rows of letter S.

The job is a row in the database; simulated agents use the ingest protocol with the token of its attempt. There is no
sweep and no worker, so only the web process does any work. Call ``open_database`` once, before importing anything of
the portal: Django keeps its initial settings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.environment.servers import answers, free_port, running, wait_until

if TYPE_CHECKING:
    from jobs.models import Attempt

PASSWORD = "bench only, thrown away"
NAMESPACE = "bench"
_ATTEMPT_TOKEN = "agent"
# Maximum entries of an agent's batch and bytes of a body (jobs/ingest/views.py, jobs/ingest/payloads.py).
BATCH = 5_000


def open_database(data: Path, url: str = "") -> None:
    """Set up Django in this process, with a new database under ``data`` or at ``url``."""
    os.environ |= {
        "REGATTA_DATA_DIR": str(data),
        "REGATTA_DATABASE_URL": url,
        "REGATTA_ADMIN_PASSWORD": PASSWORD,
        "REGATTA_INGEST_RATE": "1000000/s",
        "REGATTA_LOG_LEVEL": "WARNING",
        "DJANGO_SETTINGS_MODULE": "portal.settings",
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


@dataclass(frozen=True)
class RunningJob:
    """Job with one attempt. ``agent`` is the token of its agents."""

    id: str
    attempt: Attempt
    agent: str


def job(replicas: Sequence[str] = ("trainer-0",)) -> RunningJob:
    """Create a running job of the account ``runner``."""
    from jobs.models import Attempt, Job, Replica
    from jobs.selectors.specifications import parse
    from jobs.services.jobs import submit_job
    from rbac.selectors import digest_of

    now = datetime.now(UTC)
    spec = {"name": "streams", "files": {"train.py": "pass\n"}, "roles": {"trainer": {"replicas": len(replicas)}}}
    found = submit_job(actor=account("runner"), namespace=NAMESPACE, spec=parse(spec)).job
    Job.objects.filter(pk=found.pk).update(state="RUNNING", started=now)
    token = f"{_ATTEMPT_TOKEN}-{uuid.uuid4().hex}"
    attempt = Attempt.objects.create(job=found, number=1, token_digest=digest_of(token), created=now)
    for name in replicas:
        role, _, index = name.partition("-")
        Replica.objects.create(attempt=attempt, name=name, role=role, index=int(index), state="RUNNING")
    return RunningJob(str(found.pk), attempt, token)


def account(name: str) -> Any:
    """Create an admin who is a member of the job's namespace and signs in with ``PASSWORD``."""
    from rbac.models import Membership, Namespace, Role, User

    user, made = User.objects.get_or_create(username=name, defaults={"is_superuser": True})
    if made:
        user.set_password(PASSWORD)
        user.save()
        namespace, _ = Namespace.objects.get_or_create(name=NAMESPACE)
        Membership.objects.create(namespace=namespace, user=user, role=Role.OWNER)
    return user


def tokens(count: int) -> list[str]:
    """Return ``count`` personal tokens, each of a new account: the number of sockets per user is limited."""
    from rbac.models import ApiToken
    from rbac.selectors import digest_of

    found = []
    for number in range(count):
        secret = f"rgt_{uuid.uuid4().hex}"
        ApiToken.objects.create(user=account(f"reader{number}"), name="bench", digest=digest_of(secret))
        found.append(secret)
    return found


VIEWER = "viewer"


@contextmanager
def seen_by_viewer(fill: Callable[[RunningJob], None]) -> Iterator[tuple[RunningJob, str]]:
    """Provide a running job that ``fill`` has filled, and the URL of a web process that serves it.

    The account VIEWER may view it.
    """
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        folder = Path(scratch)
        open_database(folder / "data")
        found = job()
        fill(found)
        account(VIEWER)
        with web(folder) as address:
            yield found, address


@contextmanager
def web(folder: Path, **settings: str) -> Iterator[str]:
    """Start a web process on the open database. Provides its URL."""
    port = free_port()
    environment = {**os.environ, "PORT": str(port), **settings}
    with (folder / "web.log").open("w") as log, running(
        [sys.executable, "manage.py", "serve"], env=environment, stdout=log, stderr=log
    ) as process:  # fmt: skip
        wait_until(lambda: process.poll() is not None or answers(port), "the start of the web process")
        if process.poll() is not None:
            raise RuntimeError(f"the web process ended: {(folder / 'web.log').read_text()[-500:]}")
        yield f"http://127.0.0.1:{port}"


def child(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module of this package in a separate process and parse its last output as JSON. Django is set up once in
    each."""
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))
