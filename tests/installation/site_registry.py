"""The registry of the platform's images and of those that it builds: one with a password, where nodes can use one."""

from __future__ import annotations

import os
from pathlib import Path

from tests.jobs.operator.environment import own_address
from tests.servers.image_registry import PASSWORD, USER, ImageRegistry


class SiteRegistry:
    """A registry on this machine that asks nodes, the operator and the platform for a password.

    ``KUBE_REGISTRIES`` lists directories, separated by colons, in which the containerd of nodes looks for the settings
    of registries (``config_path``): this registry has no TLS. Without them it is the registry in ``REGISTRY``.
    """

    def __init__(self, folder: Path) -> None:
        self._directories = [Path(name) for name in os.environ.get("KUBE_REGISTRIES", "").split(":") if name]
        self._registry: ImageRegistry | None = None
        self.host = os.environ["REGISTRY"]
        if self._directories:
            folder.mkdir(parents=True, exist_ok=True)
            self._registry = ImageRegistry(folder, guarded=True, address=own_address(os.environ["KUBECONFIG"]))
            self.host = self._registry.host

    def start(self) -> None:
        if self._registry is None:
            return
        self._registry.start()
        for directory in self._directories:
            place = directory / self.host
            place.mkdir(parents=True, exist_ok=True)
            (place / "hosts.toml").write_text(
                f'server = "http://{self.host}"\n[host."http://{self.host}"]\n  capabilities = ["pull", "resolve"]\n'
            )

    def push_options(self) -> list[str]:
        """Return options of ``buildah push``."""
        return [
            "--quiet",
            "--tls-verify=false",
            "--disable-compression",
            *([f"--creds={USER}:{PASSWORD}"] if self._registry else []),
        ]

    def stop(self) -> None:
        if self._registry is None:
            return
        self._registry.stop()
        for directory in self._directories:
            (directory / self.host / "hosts.toml").unlink()
            (directory / self.host).rmdir()
