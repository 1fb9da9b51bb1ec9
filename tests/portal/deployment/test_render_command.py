"""``manage.py render-manifests``, as a process, and on a cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from portal.deployment.documented_values import documented
from portal.deployment.objects import load
from portal.deployment.values import parse
from tests.portal.deployment.installations import SAMPLES, values_file

ROOT = Path(__file__).parents[3]
VALUES = ROOT / "deploy" / "values.yaml"
# A site without what only the test cluster could not have: images and volumes of its own.
SITE = {path: value for path, (value, others) in SAMPLES.items() if not others and not path.endswith(".enabled")}
SITE |= {"web.autoscaling.enabled": True, "persistence.existingClaim": "", "checkpoints.volume": {}}
SITE |= {"jobs.affinity": {}, "affinity": {}}


def render(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", "render-manifests", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_documented_values_file_is_up_to_date() -> None:
    assert VALUES.read_text() == documented(), "python3 manage.py render-manifests --defaults > deploy/values.yaml"


def test_the_documented_values_are_all_defaults() -> None:
    assert parse(VALUES.read_text()) == parse("")


def test_the_command_prints_the_objects_of_a_values_file(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("signUp: closed\n")
    done = render(str(file))
    assert done.returncode == 0, done.stderr
    (config,) = [body for body in yaml.safe_load_all(done.stdout) if body["kind"] == "ConfigMap"]
    assert config["data"]["REGATTA_SIGN_UP"] == "closed"


def test_examples_that_were_left_in_place_are_warnings(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("")
    done = render(str(file))
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert all(line.startswith(f"{file}: warning: ") for line in lines)
    assert {"image.registry", "ingress.hosts", "ingress.trustedProxies"} <= {line.split(" ")[2] for line in lines}


def test_a_values_file_with_errors_prints_them_and_no_manifests(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("signup: open\n")
    done = render(str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{file}: error: signup is unknown. Did you mean signUp?\n"


def test_a_file_that_cannot_be_read_is_an_error_with_its_reason(tmp_path: Path) -> None:
    done = render(str(tmp_path / "none.yaml"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("none.yaml: No such file or directory.\n")


def test_the_command_needs_no_settings_and_writes_no_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    environment = {"PATH": os.environ["PATH"], "REGATTA_DATA_DIR": str(data), "REGATTA_BACKEND": "no such backend"}
    assert render(str(VALUES), environment=environment).returncode == 0
    assert not data.exists()


# --- On a cluster ----------------------------------------------------------------------------------------------------
@pytest.mark.invariant("A cluster accepts the rendered manifests of an installation.")
@pytest.mark.kube
@pytest.mark.timeout(180)
@pytest.mark.parametrize("given", [{}, SITE], ids=["defaults", "site"])
def test_a_cluster_accepts_the_rendered_manifests(given: dict[str, object], tmp_path: Path) -> None:
    kubectl = [os.environ.get("KUBECTL", "kubectl"), "--kubeconfig", os.environ["KUBECONFIG"]]
    version = json.loads(subprocess.check_output([*kubectl, "version", "-o", "json"], text=True))["serverVersion"]
    file = tmp_path / "values.yaml"
    minor = re.sub(r"\D", "", version["minor"])
    file.write_text(values_file({**given, "kubeVersion": f"1.{minor}"}))
    done = render(str(file))
    assert done.returncode == 0, done.stderr
    # A dry run creates no namespace, and needs one.
    namespaces = [body for body in load([done.stdout]) if body["kind"] == "Namespace"]
    subprocess.run([*kubectl, "apply", "-f", "-"], input=yaml.safe_dump_all(namespaces), text=True, check=True)
    applied = subprocess.run(
        [*kubectl, "apply", "--dry-run=server", "-f", "-"], input=done.stdout, capture_output=True, text=True
    )
    assert applied.returncode == 0, applied.stderr
