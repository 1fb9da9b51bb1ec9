"""P3: the first page of the job list with 50,000 jobs: server time and number of queries.

``python -m bench.pages.listing`` fills its own database and prints the figures as JSON; ``measure`` runs that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from bench.report import Row

JOBS, ROUNDS, GOAL_MS = 50_000, 9, 300.0


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as data:
        environment = os.environ | {"REGATTA_DATA_DIR": data, "DJANGO_SETTINGS_MODULE": "portal.settings"}
        command = [sys.executable, "-m", "bench.pages.listing"]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    few, many = found["queries"]
    return [
        Row("P3", f"job list with {JOBS} jobs, {what}: ms", found[what], f"<= {GOAL_MS:g}", found[what] <= GOAL_MS)
        for what in ("page", "API")
    ] + [Row("P3", "queries of the page, beyond those with 1,000 jobs", many - few, "0", many == few)]


def _main() -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.test.utils import setup_test_environment

    setup_test_environment()
    call_command("migrate", verbosity=0)
    browser, namespace = _prepare()
    _fill(namespace, 1000)
    few = _queries(browser)
    _fill(namespace, JOBS - 1000)
    figures = {"page": _milliseconds(browser, "/n/crowd/jobs"), "queries": (few, _queries(browser))}
    figures["API"] = _milliseconds(browser, "/api/v1/namespaces/crowd/jobs")
    print(json.dumps(figures))


def _prepare() -> tuple[Any, Any]:
    from django.test import Client

    from rbac.models import Membership, Namespace, Role, User

    user = User.objects.create(username="crowd")
    namespace = Namespace.objects.create(name="crowd")
    Membership.objects.create(namespace=namespace, user=user, role=Role.OWNER)
    browser = Client()
    browser.force_login(user)
    return browser, namespace


def _fill(namespace: Any, count: int) -> None:
    from jobs.examples import catalogue
    from jobs.models import CodeSnapshot, Job

    owner = namespace.memberships.get().user
    snapshot, _ = CodeSnapshot.objects.get_or_create(digest="0" * 64, defaults={"size": 1})
    spec, begun = dict(next(iter(catalogue())).spec) | {"files": {}}, datetime(2026, 1, 1, tzinfo=UTC)
    states = ("SUCCEEDED", "FAILED", "SUCCEEDED", "CANCELLED", "QUEUED")
    Job.objects.bulk_create(
        (
            Job(
                namespace=namespace,
                owner=owner,
                name=f"job-{number}",
                spec=spec,
                snapshot=snapshot,
                state=states[number % len(states)] if number % 97 else "RUNNING",
                why="Training is complete.",
                created=begun + timedelta(seconds=number),
                changed=begun,
            )
            for number in range(count)
        ),
        batch_size=2000,
    )


def _milliseconds(browser: Any, path: str) -> float:
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        answer = browser.get(path)
        times.append(1000 * (time.perf_counter() - begun))
        assert answer.status_code == 200
    return round(median(times), 1)


def _queries(browser: Any) -> int:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    # The first request of a session makes more queries.
    browser.get("/n/crowd/jobs")
    with CaptureQueriesContext(connection) as queries:
        browser.get("/n/crowd/jobs")
    return len(queries)


if __name__ == "__main__":
    _main()
