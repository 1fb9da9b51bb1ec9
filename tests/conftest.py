"""Fixtures of the Django side, for all tests."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.core.cache import cache
from django.db.backends.base.operations import BaseDatabaseOperations
from django.test.utils import setup_databases, teardown_databases
from django.utils import translation
from pytest_django import DjangoDbBlocker

from rbac.audit import triggers as audit_triggers
from tests import migrated_database, properties
from tests.personas import Personas, make_personas
from tests.servers import postgres_server
from tests.servers.etcd_server import EtcdServer
from tests.servers.redis_server import RedisServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser import SharedBrowser, Watch

properties.load_profile()

# If this is set, nothing may be skipped: a group that cannot run is a failure.
_NOTHING_SKIPPED = os.environ.get("CI", "").lower() == "true"


def _why_no_browser() -> str:
    if shutil.which("chromium") is None:
        return "there is no Chromium (Debian: apt-get install chromium)"
    return "" if importlib.util.find_spec("playwright") else "playwright is not installed (requirements-dev.txt)"


def _why_no_processes() -> str:
    return "" if sys.platform.startswith("linux") else "process groups and /proc are looked at as on Linux"


def _why_no_etcd() -> str:
    missing = [name for name in ("etcd", "etcdctl", "openssl") if shutil.which(name) is None]
    return f"there is no {missing[0]} (Debian: apt-get install etcd-server etcd-client openssl)" if missing else ""


def _why_no_postgres() -> str:
    return "" if postgres_server.programs() else "there is no PostgreSQL (Debian: apt-get install postgresql)"


def _why_no_pgbouncer() -> str:
    return "" if shutil.which("pgbouncer") else "there is no PgBouncer (Debian: apt-get install pgbouncer)"


def _why_no_redis() -> str:
    return "" if shutil.which("redis-server") else "there is no Redis (Debian: apt-get install redis-server)"


def _why_no_torch() -> str:
    return "" if importlib.util.find_spec("torch") else "torch is not installed (pip install torch==2.13.0)"


def _why_no_accelerator() -> str:
    return "" if importlib.util.find_spec("numba") else "numba is not installed (requirements-accelerator.txt)"


def _why_no_formats() -> str:
    packages = ("isal", "pyarrow", "PIL")
    missing = [name for name in packages if not importlib.util.find_spec(name)]
    return f"{missing[0]} is not installed (requirements-formats.txt)" if missing else ""


def _why_no_images() -> str:
    found = shutil.which("docker-registry")
    return "" if found else "there is no docker-registry (Debian: apt-get install docker-registry)"


def _why_no_prometheus() -> str:
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"there is no {missing[0]} (Debian: apt-get install prometheus)" if missing else ""


# Groups of tests, by marker, that have requirements of the machine, and the reason why they cannot run (empty: they
# can).
_GROUPS: Mapping[str, Callable[[], str]] = {
    "accelerator": _why_no_accelerator,
    "browser": _why_no_browser,
    "etcd": _why_no_etcd,
    "formats": _why_no_formats,
    "images": _why_no_images,
    "pgbouncer": _why_no_pgbouncer,
    "postgres": _why_no_postgres,
    "processes": _why_no_processes,
    "prometheus": _why_no_prometheus,
    "redis": _why_no_redis,
    "torch": _why_no_torch,
}


# Files and folders that take longest, by a run of each on its own.
_LONGEST = (
    *(
        "tests/portal/database/test_postgres.py",
        "tests/bench/test_fresh_clone.py",
        "tests/end_to_end/",
        "tests/faults/",
    ),
    *("tests/portal/management/test_up.py", "tests/runtime/agent/", "tests/runtime/pserver/test_process.py"),
    *(
        "tests/jobs/elastic/controller/",
        "tests/jobs/api/test_authorisation.py",
        "tests/portal/pages/test_list_pages.py",
    ),
    *("tests/portal/deployment/test_images_of_the_platform.py", "tests/jobs/operator/cluster/test_losses.py"),
    *("tests/jobs/operator/cluster/test_jobs.py", "tests/jobs/backends/kubernetes/test_backend.py"),
    "tests/jobs/backends/local/test_backend.py",
)


@functools.cache
def _place(path: str) -> int:
    """Return the place of a test file in ``_LONGEST``; that of all others is the last."""
    return next((place for place, start in enumerate(_LONGEST) if path.startswith(start)), len(_LONGEST))


# Targets of the Makefile that read only files with these words, and the markers of their tests.
_BY_WORD: Mapping[str, tuple[re.Pattern[str], frozenset[str]]] = {
    "test-timed": (re.compile(r"\btimed\b"), frozenset({"timed"})),
    "test-processes": (
        re.compile(r"mark\.(processes|browser|faults|postgres)\b"),
        frozenset({"processes", "browser", "faults", "postgres"}),
    ),
    "test-kube": (re.compile(r"mark\.kube\b"), frozenset({"kube"})),
}


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _not_found(items: Iterable[pytest.Item]) -> Iterator[str]:
    """Yield an error for each target that would not read a file with one of its tests."""
    for target, (word, markers) in _BY_WORD.items():
        files = {item.path for item in items if not markers.isdisjoint(mark.name for mark in item.iter_markers())}
        unnamed = sorted(str(path) for path in files if not word.search(_text(path)))
        if unnamed:
            yield f"make {target} would not find the tests of {', '.join(unnamed)}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The longest files come first, so that every worker has short ones at the end.
    items.sort(key=lambda item: _place(item.nodeid.partition("::")[0]))
    if errors := list(_not_found(items)):
        raise pytest.UsageError("; ".join(errors))
    for group, why_not in _GROUPS.items():
        reason = why_not()
        for item in items:
            if reason and item.get_closest_marker(group):
                item.add_marker(pytest.mark.skip(reason=f"group {group}: {reason}"))


def pytest_sessionstart(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:  # workers have none
        reporter.write_line(properties.in_words(session.config.getoption("hypothesis_seed")))


_APART = "not kube and not glusterfs and not frameworks"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each reason for which tests were skipped."""
    if terminalreporter.config.option.markexpr.endswith(_APART):
        terminalreporter.write_line("APART group kube: make test-kube tries it on the cluster of KUBECONFIG.")
        terminalreporter.write_line("APART group glusterfs: make test-glusterfs tries it as root, with /dev/fuse.")
        terminalreporter.write_line("APART group frameworks: make test-frameworks tries it with packages from PyPI.")
    if terminalreporter.config.option.markexpr == "frameworks and not kube":
        terminalreporter.write_line("APART frameworks on a cluster: set KUBECONFIG and REGISTRY to try them there too.")
    counts: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else "for no reason"
        counts[reason] = counts.get(reason, 0) + 1
    for reason, count in sorted(counts.items()):
        terminalreporter.write_line(f"SKIPPED {count} tests: {reason}", yellow=True)
    if counts and _NOTHING_SKIPPED:
        terminalreporter.write_line("CI=true: nothing may be skipped.", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if _NOTHING_SKIPPED and reporter is not None and reporter.stats.get("skipped") and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest,
    django_test_environment: None,
    django_db_blocker: DjangoDbBlocker,
    django_db_keepdb: bool,
    django_db_createdb: bool,
    django_db_modify_db_settings: None,
) -> Iterator[None]:
    """Make the test database as a copy of a migrated one (``tests.migrated_database``).

    ``--create-db`` migrates an empty one instead, and ``--reuse-db`` keeps the one of the run before.
    """
    verbosity = request.config.option.verbose
    with django_db_blocker.unblock():
        if not (django_db_keepdb or django_db_createdb):
            migrated_database.provide()
        old = setup_databases(verbosity, interactive=False, keepdb=not django_db_createdb, serialized_aliases=())
    yield
    if not django_db_keepdb:
        with django_db_blocker.unblock():
            teardown_databases(old, verbosity)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A server for all tests that do not damage it."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A server with authentication."""
    server = EtcdServer(tmp_path_factory.mktemp("guarded"))
    server.start()
    server.switch_authentication_on()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL (REGATTA_DATABASE_URL) of a private PostgreSQL of this test run."""
    server = postgres_server.PostgresServer()
    server.start()
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server for all tests that do not damage it."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def fragile_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server of one test, which may kill, suspend or fill it."""
    server = RedisServer(tmp_path_factory.mktemp("fragile-redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session", autouse=True)
def _audit_log_that_tests_may_empty() -> Iterator[None]:
    """Disable the guard of the audit log while Django truncates all tables between tests that commit."""
    empty = BaseDatabaseOperations.execute_sql_flush

    def empty_unguarded(operations: BaseDatabaseOperations, statements: list[str]) -> None:
        audit_triggers.lift(operations.connection)
        empty(operations, statements)
        audit_triggers.guard(operations.connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseDatabaseOperations, "execute_sql_flush", empty_unguarded)
        yield


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    """Reset counters, such as those of failed sign-ins, between tests."""
    yield
    cache.clear()


@pytest.fixture(autouse=True)
def _own_language() -> Iterator[None]:
    """Reset the language between tests."""
    yield
    translation.deactivate()


_browser: list[SharedBrowser] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Close the browser before a test that uses none: the loop of its driver would be running in that test."""
    try:
        yield
    finally:
        if _browser and "_shared_browser" not in getattr(nextitem, "fixturenames", ()):
            _browser.pop().close()


@pytest.fixture
def _shared_browser() -> Browser:
    """The browser of successive tests that use this fixture."""
    from tests.browser import SharedBrowser

    if not _browser:
        _browser.append(SharedBrowser())
    return _browser[0].get()


@pytest.fixture
def watch(_shared_browser: Browser) -> Iterator[Watch]:
    """A context of a browser with a watch. At the end there must be no violation of the content security policy."""
    from tests.browser import Watch

    context = _shared_browser.new_context(locale="en-GB", reduced_motion="reduce")
    found = Watch(context)
    yield found
    context.close()
    assert found.violations == []


@pytest.fixture
def page(watch: Watch) -> Page:
    """A page of that browser."""
    return watch.context.new_page()


@pytest.fixture
def personas(db: None) -> Personas:
    """All personas of the namespace ``team``."""
    return make_personas()
