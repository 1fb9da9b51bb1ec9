"""Requirements of jobs on a real cluster: an image with the current runtime, and the address of this machine."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from jobs.builds.images import layers
from jobs.builds.images.registry_client import Registry
from jobs.operator.client.api import Refusal
from jobs.operator.model.namespace_names import name_of
from tests.end_to_end.support.portal import RunningPortal
from tests.jobs.operator import leftovers
from tests.jobs.operator.kube_cluster import PORTAL, Cluster, Controller
from tests.servers.etcd_server import EtcdServer

BASE = "base/python-numpy:3.11"
_SECONDS, _BYTES = 600.0, 8 * 2**30


def own_address(kubeconfig: str) -> str:
    """Return the address at which the cluster reaches this machine."""
    server = yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.connect((urlsplit(server).hostname, 9))
        return str(line.getsockname()[0])


@contextmanager
def controller_on(cluster: Cluster, folder: Path, prefix: str) -> Iterator[Controller]:
    """Run a controller on this machine with the rights of its account, for the namespaces with the prefix."""
    cluster.define()
    controller = Controller(cluster.kubeconfig_of_the_controller(folder), prefix=prefix)
    controller.start()
    try:
        yield controller
    finally:
        controller.stop()


@contextmanager
def portal_on(cluster: Cluster, directory: Path, prefix: str, **settings: str) -> Iterator[RunningPortal]:
    """Run a portal on this machine whose jobs run on the cluster, with the rights of the portal's account there.

    It needs a controller (``controller_on``). The jobs of its admin are in ``cluster.namespace``, which the portal
    creates, and which is deleted at the end.
    """
    cluster.define()
    account = {
        "REGATTA_KUBECONFIG": cluster.kubeconfig_of("portal", directory.parent),
        "REGATTA_KUBERNETES_ACCOUNT": PORTAL,
        "REGATTA_KUBERNETES_CONTROLLER": "0",
    }
    with _running_portal(cluster, directory, prefix, {**account, **settings}) as running_portal:
        yield running_portal


@contextmanager
def portal_with_all_rights_on(
    cluster: Cluster, directory: Path, prefix: str, **settings: str
) -> Iterator[RunningPortal]:
    """Run a portal as ``portal_on`` does, but with the administrator's rights and with a controller of its own."""
    cluster.define()
    account = {"REGATTA_KUBECONFIG": cluster.kubeconfig}
    with _running_portal(cluster, directory, prefix, {**account, **settings}) as running_portal:
        yield running_portal


@contextmanager
def _running_portal(
    cluster: Cluster, directory: Path, prefix: str, settings: Mapping[str, str]
) -> Iterator[RunningPortal]:
    cluster.namespace = name_of("admin", prefix)
    made = RunningPortal(
        directory,
        host=own_address(cluster.kubeconfig),
        REGATTA_BACKEND="kubernetes",
        REGATTA_KUBERNETES_PREFIX=prefix,
        REGATTA_SIGN_IN_RATE="1000/min",
        **{leftovers.RUN: leftovers.MARK},
        **settings,
    )
    try:
        with made.open() as running_portal:
            yield running_portal
    finally:
        with suppress(Refusal):  # it was never created, or is deleted
            cluster.api.call("DELETE", f"/api/v1/namespaces/{cluster.namespace}")


def base_for_paddle(registry: str) -> str:
    """Return the base image with system files that PaddlePaddle's wheels require.

    They are OpenMP's library, and a bash with which datasets are read, copied from this machine.
    """
    found = [_library(name) for name in ("libgomp.so.1", "libtinfo.so.6")]
    files = {str(path.with_name(name)): path for name, path in found} | {"/usr/bin/bash": Path("/usr/bin/bash")}
    reference = f"{registry}/tests/python-for-paddle:3.11"
    place = Registry(registry, insecure=True)
    layers.append(place, f"{registry}/{BASE}", place, reference, files, by="tests", settings={})
    return reference


def _library(name: str) -> tuple[str, Path]:
    """Return the library's real path, not below ``/lib``, which is a link in the image as well."""
    known = subprocess.check_output(["/sbin/ldconfig", "-p"], text=True)
    found = re.search(rf"\s{re.escape(name)} .*=> (?P<path>/\S+)", known)
    assert found, f"This machine has no {name} (Debian: apt-get install libgomp1 libtinfo6)."
    return name, Path(found["path"]).resolve()


@contextmanager
def etcd_on(cluster: Cluster, directory: Path) -> Iterator[EtcdServer]:
    """Run an etcd on this machine that requires authentication and that pods can reach."""
    store = EtcdServer(directory, host=own_address(cluster.kubeconfig))
    store.start()
    try:
        store.switch_authentication_on()
        yield store
    finally:
        store.kill()


def native(cluster: Cluster, store: EtcdServer) -> dict[str, str]:
    """Return the settings of a portal whose native jobs run on the cluster and use the coordination ``store``."""
    return {
        "REGATTA_KUBERNETES_IMAGE": runtime_image(cluster.registry),
        "REGATTA_COORDINATION": store.url_of_root("/site"),
    }


def runtime_image(registry: str) -> str:
    """Return the base image of jobs; build it unless the registry has one with this content."""
    # Imported here because these need Django, which a bench configures only in the portal that it starts.
    from jobs.builds import local_bundle
    from jobs.builds.images import build_request, launcher, runtime_wheels
    from jobs.builds.images.plan import Platform, plan
    from jobs.builds.images.worker import Work

    platform = Platform(f"{registry}/tests", f"{registry}/{BASE}", launcher.runtime_digest(), runtime_wheels.packages())
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
