"""What jobs on a real cluster need around it: an image with the runtime as it is here, and this machine's address."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from jobs.builds.images import layers
from jobs.builds.images.registry_client import Registry
from jobs.operator.client.api import Refusal
from jobs.operator.model.namespace_names import name_of
from runtime.coordination.etcd_address import EtcdAddress
from tests.end_to_end.support.portal import RunningPortal
from tests.jobs.operator import leftovers
from tests.jobs.operator.kube_cluster import Cluster
from tests.servers.etcd_server import EtcdServer

BASE = "base/python-numpy:3.11"
_SECONDS, _BYTES = 600.0, 8 * 2**30


def own_address(kubeconfig: str) -> str:
    """This machine's address as the cluster sees it."""
    server = yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((urlsplit(server).hostname, 9))
        return str(line.getsockname()[0])


@contextmanager
def portal_on(cluster: Cluster, directory: Path, prefix: str, **settings: str) -> Iterator[RunningPortal]:
    """A portal on this machine whose jobs run on the cluster. Its admin's jobs are in ``cluster.namespace``, which the
    portal makes, and which goes at the end."""
    cluster.define()
    cluster.namespace = name_of("admin", prefix)
    made = RunningPortal(
        directory,
        host=own_address(cluster.kubeconfig),
        REGATTA_BACKEND="kubernetes",
        REGATTA_KUBECONFIG=cluster.kubeconfig,
        REGATTA_KUBERNETES_PREFIX=prefix,
        REGATTA_SIGN_IN_RATE="1000/min",
        **{leftovers.RUN: leftovers.MARK},
        **settings,
    )
    try:
        with made.open() as running_portal:
            yield running_portal
    finally:
        with suppress(Refusal):  # it was never made, or is gone
            cluster.api.call("DELETE", f"/api/v1/namespaces/{cluster.namespace}")


def base_for_paddle(registry: str) -> str:
    """The base image with what PaddlePaddle's wheels expect of the system: OpenMP's library, and a bash, by which
    datasets are read. They are this machine's."""
    found = [_library(name) for name in ("libgomp.so.1", "libtinfo.so.6")]
    files = {str(path.with_name(name)): path for name, path in found} | {"/usr/bin/bash": Path("/usr/bin/bash")}
    reference = f"{registry}/tests/python-for-paddle:3.11"
    place = Registry(registry, insecure=True)
    layers.append(place, f"{registry}/{BASE}", place, reference, files, by="tests", settings={})
    return reference


def _library(name: str) -> tuple[str, Path]:
    """Where it is, not by way of ``/lib``, which is a link in the image as well."""
    known = subprocess.check_output(["/sbin/ldconfig", "-p"], text=True)
    found = re.search(rf"\s{re.escape(name)} .*=> (?P<path>/\S+)", known)
    assert found, f"This machine has no {name} (Debian: apt-get install libgomp1 libtinfo6)."
    return name, Path(found["path"]).resolve()


@contextmanager
def etcd_on(cluster: Cluster, directory: Path) -> Iterator[EtcdServer]:
    """An etcd of this machine that asks for users, and that pods reach."""
    store = EtcdServer(directory, host=own_address(cluster.kubeconfig))
    store.start()
    try:
        store.switch_authentication_on()
        yield store
    finally:
        store.kill()


def native(cluster: Cluster, store: EtcdServer) -> dict[str, str]:
    """Settings of a portal whose jobs of the platform's own framework run on the cluster and meet in ``store``."""
    return {
        "REGATTA_KUBERNETES_IMAGE": runtime_image(cluster.registry),
        "REGATTA_COORDINATION": EtcdAddress((store.server,), "/site", "root", store.password).url,
    }


def runtime_image(registry: str) -> str:
    """The image on which the platform puts the code of jobs; made if the registry has none of this content."""
    # Only here: these need Django, which a bench has in the portal that it starts and not in itself.
    from jobs.builds import local_bundle
    from jobs.builds.images import build_request, launcher
    from jobs.builds.images.plan import Platform, plan
    from jobs.builds.images.worker import Work

    platform = Platform(f"{registry}/tests", f"{registry}/{BASE}", launcher.runtime_digest(), launcher.packages())
    image = plan(platform, "tests", "", ()).images[0]
    with (
        tempfile.TemporaryDirectory() as workspace,
        (Path(workspace) / build_request.LOG).open("w+", encoding="utf-8") as log,
    ):
        order = build_request.Order(
            images=(image,),
            registry=registry,
            insecure=True,
            credentials="",
            seconds=_SECONDS,
            bytes=_BYTES,
            builder=build_request.BUILDAH,
            storage=f"{workspace}/storage",
            pip={name: os.environ[name] for name in local_bundle.pip_variables()},
        )
        Work(order, Path(workspace), log).make_all()
    return image.reference
