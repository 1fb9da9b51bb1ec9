"""``deploy/command_pod.py``: a Pod for one command, from a rendered Deployment of the portal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.portal.deployment.installations import installation, workloads

ROOT = Path(__file__).parents[3]


def deployment(name: str) -> dict[str, Any]:
    return dict(next(each for each in workloads(installation()) if each["metadata"]["name"] == name))


def command_pod(*arguments: str, stdin: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "deploy/command_pod.py", *arguments]
    return subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def test_the_pod_runs_the_command_with_settings_and_volumes_of_the_deployment() -> None:
    sweep = deployment("portal-sweep")
    pod = json.loads(command_pod("after_restore", "--dry-run", stdin=json.dumps(sweep)).stdout)
    (container,) = pod["spec"]["containers"]
    given = sweep["spec"]["template"]["spec"]
    assert (pod["metadata"]["name"], pod["spec"]["restartPolicy"]) == ("after-restore", "Never")
    assert container["command"] == ["python3", "manage.py", "after_restore", "--dry-run"]
    assert "livenessProbe" not in container
    for name in ("image", "env", "envFrom", "volumeMounts", "securityContext"):
        assert container.get(name) == given["containers"][0].get(name)
    for name in ("serviceAccountName", "volumes", "securityContext", "imagePullSecrets"):
        assert pod["spec"].get(name) == given.get(name)
    # The policies admit it to the servers, and no Deployment or Service selects it.
    assert pod["metadata"]["labels"] == sweep["spec"]["template"]["metadata"]["labels"]


def test_without_a_command_it_says_how_it_is_used() -> None:
    done = command_pod(stdin="{}")
    assert done.returncode == 1
    assert "kubectl create -f -" in done.stderr
