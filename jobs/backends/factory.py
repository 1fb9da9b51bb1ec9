"""The backend of this installation, chosen by the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from jobs.backends.base import ClusterBackend, Machine, OneMachine
from jobs.backends.checkpoint_store import CheckpointStore
from jobs.backends.home_store import HomeStore
from jobs.backends.kubernetes.manifests import PLACEMENT, Cluster, Mount
from jobs.backends.local import homes, isolation
from jobs.backends.local.backend import LocalBackend

if TYPE_CHECKING:
    from jobs.operator.client.api import StreamingApi


def _local() -> ClusterBackend:
    return LocalBackend(Path(settings.ATTEMPTS_DIR), policy=isolation.policy)


def _kubernetes() -> ClusterBackend:
    # Imported here because the Kubernetes client takes a second to import, and the local backend does not need it.
    from jobs.backends.kubernetes.backend import KubernetesBackend

    directory = settings.KUBERNETES_CHECKPOINTS_DIR
    return KubernetesBackend(
        api_server(), kubernetes_cluster(), CheckpointStore(Path(directory)) if directory else None
    )


def api_server() -> StreamingApi:
    """Return the API server of the cluster that the settings name. Raises ImproperlyConfigured."""
    return _api_server(settings.KUBECONFIG)


def kubernetes_cluster() -> Cluster:
    """Return the configuration of the cluster from the settings. Raises ImproperlyConfigured."""
    if strange := settings.KUBERNETES_PLACEMENT.keys() - PLACEMENT:
        raise ImproperlyConfigured(
            f"REGATTA_KUBERNETES_PLACEMENT takes {', '.join(PLACEMENT)}, and not {', '.join(sorted(strange))}."
        )
    return Cluster(
        image=settings.KUBERNETES_IMAGE,
        prefix=settings.KUBERNETES_PREFIX,
        gpu=settings.KUBERNETES_GPU,
        data=tuple(Mount(PurePosixPath(path), volume) for path, volume in settings.KUBERNETES_DATA.items()),
        checkpoints=settings.KUBERNETES_CHECKPOINTS or None,
        homes=settings.KUBERNETES_HOMES or None,
        pull_secret=settings.KUBERNETES_PULL_SECRET,
        placement=settings.KUBERNETES_PLACEMENT,
        burst=settings.KUBERNETES_CPU_BURST,
        replaces=settings.SPARE_STARTS > 0,
    )


@lru_cache(maxsize=1)
def _api_server(kubeconfig: str) -> StreamingApi:
    """Return one API server for all threads of the process: its connections are kept open."""
    from jobs.operator.client.api import NoCluster, connect

    try:
        return connect(kubeconfig or None, _CONNECTIONS)
    except NoCluster as problem:
        raise ImproperlyConfigured(
            f"REGATTA_BACKEND is kubernetes, but nothing says where the cluster is: {problem} Set REGATTA_KUBECONFIG."
        ) from problem


_CONNECTIONS = 16
BACKENDS: Mapping[str, Callable[[], ClusterBackend]] = {"local": _local, "kubernetes": _kubernetes}


def current() -> ClusterBackend:
    """Return the backend of this installation. A new one per call is enough: a backend stores only connections."""
    make = BACKENDS.get(settings.CLUSTER_BACKEND)
    if make is None:
        raise ImproperlyConfigured(
            f"REGATTA_BACKEND is {settings.CLUSTER_BACKEND!r}; choose one of {', '.join(BACKENDS)}."
        )
    return make()


def home_store() -> HomeStore | None:
    """Return the homes of notebooks as mounted on this machine; None where they are not mounted."""
    if settings.CLUSTER_BACKEND == "local":
        return HomeStore(Path(settings.ATTEMPTS_DIR).absolute().parent / homes.DIRECTORY)
    return HomeStore(Path(settings.KUBERNETES_HOMES_DIR)) if settings.KUBERNETES_HOMES_DIR else None


def machine() -> Machine | None:
    """Return the machine that runs all jobs; None where the backend uses several machines."""
    backend = current()
    return backend.machine() if isinstance(backend, OneMachine) else None
