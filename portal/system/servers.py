"""Checks of the servers that the portal uses. Each takes at most a few seconds and returns no address and no secret."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from portal.system import observations as seen
from portal.system.certificate import certificate

# The longest time that one call of a check may take.
CALL_SECONDS = 2.0
_ALARMS = {1: "NOSPACE", 2: "CORRUPT"}
# The lease of the PaddleJob controller: ``deploy/kubernetes/controller.yaml``.
LEASE = ("regatta-system", "paddlejob-controller")


def database() -> seen.Observation:
    """Check the database, on the connection of the caller."""
    executor = MigrationExecutor(connection)
    pending = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    version = ".".join(map(str, connection.get_database_version()))
    return seen.Database(connection.vendor, version, _size_of_database(), pending)


def _size_of_database() -> int | None:
    if connection.vendor != "postgresql":
        path = Path(str(connection.settings_dict["NAME"]))
        files = (path, path.with_name(f"{path.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists()) or None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        row = cursor.fetchone()
    return int(row[0]) if row else None


def redis() -> seen.Observation:
    """Check Redis."""
    if not settings.REDIS_URL:
        return seen.Unused("redis")
    from redis import Redis

    limits: dict[str, Any] = {"socket_connect_timeout": CALL_SECONDS, "socket_timeout": CALL_SECONDS, "retry": None}
    with closing(Redis.from_url(settings.REDIS_URL, **limits)) as client:
        answer: Any = client.info("server")
    return seen.Redis(str(answer["redis_version"]))


def etcd() -> seen.Observation:
    """Check each member of etcd."""
    if not settings.COORDINATION:
        return seen.Unused("etcd")
    from runtime.coordination.etcd_status import statuses

    found = statuses(settings.COORDINATION, CALL_SECONDS)
    if not found.answers:
        return seen.Unreachable("etcd", found.error)
    return seen.Etcd(
        version=found.answers[0].version,
        members=found.members,
        reachable=len(found.answers),
        size=max(answer.size for answer in found.answers),
        alarms=tuple(_ALARMS.get(alarm, str(alarm)) for alarm in found.alarms),
    )


def kubernetes() -> seen.Observation:
    """Check the API server, and the lease of the PaddleJob controller."""
    if settings.CLUSTER_BACKEND != "kubernetes":
        return seen.Unused("kubernetes")
    from jobs.backends.factory import api_server
    from jobs.operator.client.api import Refusal

    api = api_server()
    version = str(api.call("GET", "/version").get("gitVersion", ""))
    namespace, name = map(quote, LEASE)
    try:
        spec = api.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}").get("spec", {})
    except Refusal:
        return seen.Kubernetes(version)
    return seen.Kubernetes(version, spec.get("holderIdentity") or None, _time(spec.get("renewTime")))


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None


def storage() -> seen.Observation:
    """Check that the storage can be written: a file is made and removed in its directory, or its bucket is asked."""
    if settings.STORAGE_BUCKET is None:
        directory = Path(settings.STORAGE_DIR)
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"regatta")
        return seen.Storage(str(directory))
    from datasets.storage import default_storage

    next(iter(default_storage().list("probe-of-the-portal/")), None)
    return seen.Storage(f"s3://{settings.STORAGE_BUCKET['bucket']}/{settings.STORAGE_BUCKET['prefix']}")


def disks() -> list[seen.Disk]:
    """Return the file systems of the data directory and, where it is another one, of the storage."""
    data, store = Path(settings.DATA_DIR), Path(settings.STORAGE_DIR)
    places = (
        {"data": data} if not store.exists() or _device(store) == _device(data) else {"data": data, "storage": store}
    )
    return [_disk(name, path) for name, path in places.items()]


def _device(path: Path) -> int:
    return path.stat().st_dev if path.exists() else -1


def _disk(name: str, path: Path) -> seen.Disk:
    found = os.statvfs(path)
    return seen.Disk(
        name,
        str(path),
        total=found.f_blocks * found.f_frsize,
        free=found.f_bavail * found.f_frsize,
        inodes=found.f_files,
        inodes_free=found.f_favail,
    )


# The checks that wait for other machines, by name. They use no database.
REMOTE: Mapping[str, Callable[[], seen.Observation]] = {
    "redis": redis,
    "etcd": etcd,
    "kubernetes": kubernetes,
    "storage": storage,
    "certificate": certificate,
}
