"""An installation by the page: its commands, in a copy of the project."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from regatta import Client
from tests.installation import image_store, stand_ins
from tests.installation.name_proxy import NameProxy
from tests.installation.page import Page
from tests.installation.site import HOST, Ingress, Kubectl, Volumes, make_certificate, remove_all
from tests.installation.site_registry import SiteRegistry
from tests.servers.image_registry import PASSWORD, USER
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SYSTEM = "regatta-system"
# What git ignores at the root of the project, and caches everywhere.
_AT_ROOT, _EVERYWHERE = (
    {".git", ".venv", "data", "build"},
    shutil.ignore_patterns("node_modules", "__pycache__", ".*_cache"),
)
# The platform and a job with two trainers and two parameter servers fit on one node with two cores.
_REQUESTS = {"requests": {"cpu": "50m"}}
_PROCESSES = ("web", "worker", "sweep", "controller", "coordinationGateway")


class Installation:
    """The portal on the cluster, in a directory with the operator's files.

    ``settings`` are further settings of the portal, by name.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        self.kubectl = Kubectl()
        self._public = os.environ["REGISTRY"]  # in place of public registries
        self._own = SiteRegistry(folder)
        self.registry = self._own.host
        self.folder = folder / "regatta"
        self._settings = settings
        # Nodes keep images by tag.
        self._run = uuid.uuid4().hex[:8]
        self.tag = self.tag_of("0.1.0")
        self.volumes = Volumes(self.kubectl)
        self.page = Page(ROOT / "docs" / "operations.md", self._names())
        self.images = stand_ins.push_all(self._public)
        self.ingress = Ingress(self.kubectl, self.images["nginx"])
        self._tools = folder / "bin"
        self._proxy: NameProxy | None = None
        self._token = ""

    def tag_of(self, release: str) -> str:
        """Return the tag of a release, which no other installation has used."""
        return f"{release}-{self._run}"

    def _names(self) -> dict[str, str]:
        return {
            "0.1.0": self.tag,
            "registry.example.com": self.registry,
            "--docker-username=... --docker-password=...": f"--docker-username={USER} --docker-password={PASSWORD}",
        }

    # --- commands ----------------------------------------------------------------------------------------------------
    def run(self, commands: str, seconds: float = 900) -> str:
        """Run shell commands of the page in the directory; return their output. Stops at the first that fails."""
        environment = {**os.environ, "PATH": f"{self._tools}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def _make_tools(self) -> None:
        """Write ``docker``, ``kubectl`` and ``python3`` for the commands of the page."""
        base = image_store.base_with_pip(self._public)
        build = " ".join(f"'{word}'" for word in image_store.buildah("build", *image_store.build_options(base)))
        push = " ".join(f"'{word}'" for word in image_store.buildah("push", *self._own.push_options()))
        docker = f'case $1 in\nbuild) shift; exec {build} "$@";;\npush) shift; exec {push} "$@";;\nesac\nexit 2\n'
        kubectl = " ".join(f"'{word}'" for word in self.kubectl.command)
        self._tools.mkdir(parents=True, exist_ok=True)
        for name, script in {
            "docker": docker,
            "kubectl": f'exec {kubectl} "$@"\n',
            "python3": f"exec '{sys.executable}' \"$@\"\n",
        }.items():
            (self._tools / name).write_text(f"#!/bin/sh\n{script}")
            (self._tools / name).chmod(0o755)

    def push(self, image: str, reference: str) -> None:
        """Push an image that another registry or the storage has to the platform's registry."""
        with image_store.container(image, "--tls-verify=false") as container:
            image_store.do("commit", "--quiet", container, reference)
        image_store.do("push", *self._own.push_options(), reference)

    # --- install -----------------------------------------------------------------------------------------------------
    def values(self) -> dict[str, Any]:
        """Return the values file: the page's example with what this cluster needs."""
        (example,) = self.page.section("Install").blocks("yaml")
        values: dict[str, Any] = yaml.safe_load(example)
        images = {name: self._image(name) for name in ("postgres", "redis", "etcd")}
        servers = {"postgresql": images["postgres"], "redis": images["redis"], "etcd": images["etcd"]}
        changed: dict[str, Any] = {
            "kubeVersion": self._version(),
            "image": {"tag": self.tag},
            "signUp": "closed",
            "registry": {"insecure": True},
            "builds": {"baseImage": f"{self.registry}/{image_store.BASE}"},
            "ingress": {"trustedProxies": ["10.244.1.0/24", "10.244.2.0/24"]},
            "settings": self._settings,
            **{name: {"resources": _REQUESTS} for name in _PROCESSES},
        }
        for server, image in servers.items():
            changed[server] = {"image": image, "resources": _REQUESTS}
        return _merged(_merged(values, changed), self.volumes.values())

    def _image(self, name: str) -> dict[str, str]:
        path, _, tag = self.images[name].rpartition(":")
        registry, _, repository = path.partition("/")
        return {"registry": registry, "repository": repository, "tag": tag}

    def _version(self) -> str:
        server = self.kubectl.json("version")["serverVersion"]
        return f"{server['major']}.{''.join(filter(str.isdigit, server['minor']))}"

    def install(self) -> None:
        """Follow section Install, in the order of its steps, after what a killed run has left is removed."""
        self._remove_leftovers()
        shutil.copytree(ROOT, self.folder, ignore=_left_out)
        self._make_tools()
        self._own.start()
        self.push(f"{self._public}/{image_store.BASE}", f"{self.registry}/{image_store.BASE}")
        self.volumes.make()
        make_certificate(self.folder)
        self.write("mail-server.txt", "smtp://portal:secret@mail.example.org:587")
        section = self.page.section("Install")
        self.run(section.command("docker build"), seconds=1800)
        self.write("values.yaml", yaml.safe_dump(self.values()))
        self.run(section.command("make_secrets.py"))
        self.render_and_apply()
        self.open()

    def render_and_apply(self) -> None:
        """Follow the steps Render and Apply of section Install."""
        section = self.page.section("Install")
        self.run(section.command("manage.py render-manifests"))
        self.run(section.command("--dry-run=server"), seconds=1200)

    def install_again(self) -> None:
        """Install with the images and secrets of before, on empty volumes."""
        self.volumes.make()
        secrets = self.page.section("Install").command("make_secrets.py")
        kept = [line for line in secrets.splitlines() if "make_secrets.py" not in line]
        assert len(kept) == len(secrets.splitlines()) - 1
        self.run("\n".join(kept))
        self.render_and_apply()
        self.open()

    def open(self) -> None:
        """Start the ingress in front of the portal, and wait until it answers through it."""
        service = self.kubectl.json("-n", SYSTEM, "get", "service", "portal")
        self.ingress.start(service["spec"]["clusterIP"], self.folder)
        self._proxy = NameProxy({HOST: (self.ingress.address(), 443)})
        until("the portal answers through the ingress", self.answers, 60)

    def _remove_leftovers(self) -> None:
        self.kubectl("delete", "namespace", "--ignore-not-found", SYSTEM, "regatta-builds")
        self.kubectl("delete", "namespace", "-l", "app.kubernetes.io/managed-by=regatta")
        remove_all(self.kubectl)

    def close(self) -> None:
        """Remove what is left of the installation, on the cluster and on this machine."""
        self._remove_leftovers()
        self.volumes.remove()
        self._own.stop()

    def back_up(self) -> None:
        """Follow section Back up: the dump and the contents."""
        self.run(self.page.section("Back up").command("pg_dump", "storage.tar"))

    def restore(self) -> None:
        """Follow section Restore, for a dump."""
        section = self.page.section("Restore")
        for words in ("storage.tar", "--for=delete", "pg_restore", "command_pod.py", "--replicas=2"):
            self.run(section.command(words))

    def uninstall(self) -> None:
        """Follow section Uninstall."""
        for command in self.page.section("Uninstall").blocks():
            self.run(command, seconds=600)

    # --- the cluster -------------------------------------------------------------------------------------------------
    def pods(self, name: str) -> list[dict[str, Any]]:
        """Return the running pods of a workload of the platform."""
        found = self.kubectl.json("-n", SYSTEM, "get", "pods", "-l", f"app.kubernetes.io/name={name}")["items"]
        return [pod for pod in found if _is_in_use(pod)]

    def pod_address(self, name: str) -> str:
        return str(self.pods(name)[0]["status"]["podIP"])

    def node_address(self) -> str:
        return str(self.pods("portal-web")[0]["status"]["hostIP"])

    def image_of(self, deployment: str) -> str:
        """Return the image of the first container."""
        found = self.kubectl.json("-n", SYSTEM, "get", "deployment", deployment)
        return str(found["spec"]["template"]["spec"]["containers"][0]["image"])

    def objects_left(self) -> list[str]:
        """Return what an uninstalled portal has left: objects with its labels or names, as kind and name."""
        kinds = "namespace,clusterrole,clusterrolebinding,customresourcedefinition,priorityclass"
        names = self.kubectl("get", kinds, "--output=name").split()
        return [name for name in names if "regatta" in name or "paddlejob" in name]

    # --- the portal --------------------------------------------------------------------------------------------------
    @property
    def address(self) -> str:
        return f"https://{HOST}"

    def command(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run ``regatta`` as ``admin`` on this machine, with ``text`` as its input."""
        assert self._proxy is not None
        reached = {"HTTPS_PROXY": self._proxy.url, "SSL_CERT_FILE": str(self.folder / "fullchain.pem")}
        signed_in = {"REGATTA_SERVER": self.address, "REGATTA_TOKEN": self.token(), "REGATTA_NAMESPACE": "admin"}
        return subprocess.run(
            [sys.executable, "-m", "regatta", *arguments],
            cwd=self.folder,
            env={**os.environ, **reached, **signed_in},
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def transport(self) -> httpx.HTTPTransport:
        assert self._proxy is not None
        context = ssl.create_default_context(cafile=str(self.folder / "fullchain.pem"))
        return httpx.HTTPTransport(verify=context, proxy=httpx.Proxy(self._proxy.url))

    def http(self, seconds: float = 30, **headers: str) -> httpx.Client:
        return httpx.Client(base_url=self.address, transport=self.transport(), timeout=seconds, headers=headers)

    def answers(self) -> bool:
        try:
            with self.http(5) as http:
                return http.get("/api/v1/me").status_code == 401
        except httpx.TransportError:
            return False

    def admin_password(self) -> str:
        items = json.loads((self.folder / "secrets.json").read_text())["items"]
        return str(items[0]["stringData"]["REGATTA_ADMIN_PASSWORD"])

    def secrets(self) -> dict[str, str]:
        """Return all values of the Secrets `portal` and `servers` on the cluster, in base64."""
        items = self.kubectl.json("-n", SYSTEM, "get", "secret", "portal", "servers")["items"]
        return {name: value for item in items for name, value in item["data"].items()}

    def token(self) -> str:
        """Return an API token of ``admin``."""
        if not self._token:
            with Client(self.address, transport=self.transport()) as portal:
                self._token = portal.tokens.sign_in("admin", self.admin_password(), "installation")
        return self._token

    def client(self) -> Client:
        return Client(self.address, self.token(), namespace="admin", transport=self.transport())


def _is_in_use(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _left_out(folder: str, names: list[str]) -> set[str]:
    return (_AT_ROOT if Path(folder) == ROOT else set()) | _EVERYWHERE(folder, names)


def _merged(values: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for name, value in changed.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
