"""Checks of the servers that the portal uses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from jobs.backends import factory
from jobs.operator.client.api import Refusal
from portal.system import servers
from portal.system.observations import Etcd, Kubernetes, Unreachable, Unused
from tests.ports import free_port
from tests.servers.etcd_server import EtcdServer

RENEWED = "2026-11-26T12:00:00.000000Z"


# --- etcd ------------------------------------------------------------------------------------------------------------
def test_without_an_address_etcd_is_not_used(settings: Any) -> None:
    settings.COORDINATION = ""
    assert servers.etcd() == Unused("etcd")


@pytest.mark.etcd
def test_a_member_reports_version_and_size(settings: Any, etcd: EtcdServer) -> None:
    settings.COORDINATION = etcd.url
    found = servers.etcd()
    assert isinstance(found, Etcd)
    assert (found.members, found.reachable, found.alarms) == (1, 1, ())
    assert found.version.startswith("3.")
    assert found.size > 0


@pytest.mark.etcd
def test_a_member_that_does_not_answer_is_counted(settings: Any, etcd: EtcdServer) -> None:
    settings.COORDINATION = f"etcd://{etcd.server},127.0.0.1:{free_port()}"
    found = servers.etcd()
    assert isinstance(found, Etcd)
    assert (found.members, found.reachable) == (2, 1)


@pytest.mark.etcd
def test_a_server_with_authentication_is_asked_with_the_account_of_the_portal(
    settings: Any, guarded: EtcdServer
) -> None:
    settings.COORDINATION = f"etcd://root:{quote(guarded.password, safe='')}@{guarded.server}"
    assert isinstance(servers.etcd(), Etcd)


def test_no_member_that_answers_is_an_error_without_the_address(settings: Any) -> None:
    settings.COORDINATION = f"etcd://root:hunter22@127.0.0.1:{free_port()}"
    assert servers.etcd() == Unreachable("etcd", "StoreUnavailable")


# --- Kubernetes ------------------------------------------------------------------------------------------------------
class ClusterWithLease:
    """An API server that answers for its version and the lease, or refuses the lease with a status."""

    def __init__(self, lease: Mapping[str, Any] | int) -> None:
        self._lease = lease

    def call(self, method: str, path: str, body: Any = None, query: Any = None) -> dict[str, Any]:
        if path == "/version":
            return {"gitVersion": "v1.30.2"}
        assert path == "/apis/coordination.k8s.io/v1/namespaces/regatta-system/leases/paddlejob-controller"
        if isinstance(self._lease, int):
            raise Refusal(self._lease)
        return {"spec": dict(self._lease)}


@pytest.mark.parametrize(
    ("lease", "expected"),
    [
        (
            {"holderIdentity": "pod-1", "renewTime": RENEWED},
            Kubernetes("v1.30.2", "pod-1", datetime(2026, 11, 26, 12, tzinfo=UTC)),
        ),
        (
            {"holderIdentity": "", "renewTime": RENEWED},
            Kubernetes("v1.30.2", None, datetime(2026, 11, 26, 12, tzinfo=UTC)),
        ),
        ({"holderIdentity": "pod-1", "renewTime": "soon"}, Kubernetes("v1.30.2", "pod-1", None)),
        (404, Kubernetes("v1.30.2")),
        (403, Kubernetes("v1.30.2")),
    ],
)
def test_the_cluster_has_a_version_and_the_holder_of_the_lease(
    settings: Any, monkeypatch: pytest.MonkeyPatch, lease: Any, expected: Kubernetes
) -> None:
    settings.CLUSTER_BACKEND = "kubernetes"
    monkeypatch.setattr(factory, "api_server", lambda: ClusterWithLease(lease))
    assert servers.kubernetes() == expected


def test_the_local_backend_uses_no_cluster(settings: Any) -> None:
    settings.CLUSTER_BACKEND = "local"
    assert servers.kubernetes() == Unused("kubernetes")


# --- Storage and disks -----------------------------------------------------------------------------------------------
def test_a_storage_that_can_be_written_is_named(settings: Any, tmp_path: Path) -> None:
    settings.STORAGE_BUCKET, settings.STORAGE_DIR = None, tmp_path / "storage"
    assert servers.storage() == servers.seen.Storage(str(tmp_path / "storage"))


def test_a_storage_that_cannot_be_written_is_an_error(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings.STORAGE_BUCKET, settings.STORAGE_DIR = None, tmp_path / "file"
    with pytest.raises(FileExistsError):
        servers.storage()


def test_a_storage_on_the_disk_of_the_data_directory_is_shown_once(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR, settings.STORAGE_DIR = tmp_path, tmp_path
    (disk,) = servers.disks()
    assert (disk.name, disk.path) == ("data", str(tmp_path))
    assert 0 < disk.free <= disk.total


def test_a_storage_on_another_file_system_is_shown_apart(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR, settings.STORAGE_DIR = tmp_path, Path("/proc")
    assert [disk.name for disk in servers.disks()] == ["data", "storage"]


def test_redis_without_an_address_is_not_used(settings: Any) -> None:
    settings.REDIS_URL = ""
    assert servers.redis() == Unused("redis")
