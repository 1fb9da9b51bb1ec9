"""Private Prometheus for tests, on a free port of the loopback, with its data in a directory of the test."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.ports import free_port
from tests.waiting import until

START_SECONDS = 30.0


class PrometheusServer:
    """Scrapes ``targets`` (address by label ``app``) every second and evaluates the rules of a file."""

    def __init__(self, directory: Path, targets: Mapping[str, str], rules: Path) -> None:
        self._directory = directory
        self._address = f"127.0.0.1:{free_port()}"
        jobs = [{"targets": [address], "labels": {"app": app, "pod": f"{app}-0"}} for app, address in targets.items()]
        self._configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "regatta", "static_configs": jobs}],
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        file = self._directory / "prometheus.yaml"
        file.write_text(yaml.safe_dump(self._configuration))
        arguments = (f"--config.file={file}", f"--storage.tsdb.path={self._directory / 'data'}")
        with (self._directory / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["prometheus", *arguments, f"--web.listen-address={self._address}"], stdout=log, stderr=log
            )
        until("Prometheus is ready", self._ready, START_SECONDS, story=self.printed)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"http://{self._address}/-/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def printed(self) -> str:
        return (self._directory / "prometheus.log").read_text()

    def query(self, expression: str) -> dict[tuple[str, ...], float]:
        """Return the value of each time series, by the values of its labels."""
        result = self._get("query", query=expression)["result"]
        return {tuple(one["metric"].values()): float(one["value"][1]) for one in result}

    def targets(self) -> list[dict[str, Any]]:
        return list(self._get("targets")["activeTargets"])

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        answer = httpx.get(f"http://{self._address}/api/v1/{path}", params=parameters, timeout=20)
        return dict(answer.raise_for_status().json()["data"])

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
