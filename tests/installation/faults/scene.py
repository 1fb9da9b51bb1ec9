"""An installation with a running job, and the ways to harm it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from typing import Any

from jobs.operator.model import names
from regatta import Client, Job
from regatta.errors import PortalError
from tests.installation.installation import SYSTEM, Installation
from tests.waiting import let_pass, until

_JOB_NAMESPACE = "regatta-admin"
_ROLES = {"master": names.MASTER, "pserver": names.PS, "trainer": names.WORKER}
_WORKLOADS = "deployment,statefulset"
READY_SECONDS = 600.0


class Scene:
    """``job`` runs while faults happen. All waits fail with a description."""

    def __init__(self, installation: Installation, client: Client, job: Job) -> None:
        self.installation, self.client, self.job = installation, client, job
        self.kubectl = installation.kubectl

    # --- harm --------------------------------------------------------------------------------------------------------
    def kill(self, namespace: str, *pods: str) -> None:
        """Delete pods without a grace, as a kernel kills a process and a node loses a pod."""
        self.kubectl("-n", namespace, "delete", "pod", "--grace-period=0", "--force", "--wait=false", *pods)

    def kill_all(self, name: str) -> None:
        """Kill all pods of a workload of the platform at once."""
        self.kill(SYSTEM, *(pod["metadata"]["name"] for pod in self.installation.pods(name)))

    def kill_replica(self, name: str) -> None:
        """Kill the pod of a replica of the job."""
        self.kill(_JOB_NAMESPACE, self.replica_pod(name))

    def scale(self, workload: str, replicas: int) -> None:
        self.kubectl("-n", SYSTEM, "scale", workload, f"--replicas={replicas}")

    def scaled_to(self, workload: str, replicas: int) -> None:
        """Scale and wait until the other pods are gone."""
        self.scale(workload, replicas)
        name = workload.partition("/")[2]
        until(f"{name} has {replicas} pods", lambda: len(self.all_pods(name)) == replicas, 120, every=0.2)

    def drop_traffic_to(self, policy: str) -> None:
        """Remove what a network policy admits: packets are dropped, and no connection ends."""
        self.kubectl("-n", SYSTEM, "delete", "networkpolicy", policy)

    def drop_traffic_to_port(self, policy: str, port: int) -> None:
        """Remove what a network policy admits to one port."""
        rules = self.kubectl.json("-n", SYSTEM, "get", "networkpolicy", policy)["spec"]["ingress"]
        kept = [rule for rule in rules if all(one["port"] != port for one in rule["ports"])]
        assert len(kept) < len(rules), f"{policy} does not name port {port}"
        patch = json.dumps({"spec": {"ingress": kept}})
        self.kubectl("-n", SYSTEM, "patch", "networkpolicy", policy, "--type=merge", f"--patch={patch}")

    def admit_traffic_again(self) -> None:
        self.installation.run("kubectl apply -f manifests.yaml")

    def hold(self, seconds: float) -> None:
        """Leave the fault as it is for a time, which is a property of the fault."""
        let_pass(seconds)

    def end_node(self) -> None:
        """The second node ends without a word (``KUBE_NODE_DOWN``)."""
        subprocess.run(shlex.split(os.environ["KUBE_NODE_DOWN"]), check=True, capture_output=True)

    def start_node(self) -> None:
        subprocess.run(shlex.split(os.environ["KUBE_NODE_UP"]), check=True, capture_output=True)

    # --- state -------------------------------------------------------------------------------------------------------
    def all_pods(self, name: str) -> list[dict[str, Any]]:
        """Return the pods of a workload of the platform in any state."""
        items = self.kubectl.json("-n", SYSTEM, "get", "pods", "-l", f"app.kubernetes.io/name={name}")["items"]
        return list(items)

    def node_of(self, name: str) -> str:
        return str(self.all_pods(name)[0]["spec"]["nodeName"])

    def replica_pods(self) -> list[dict[str, Any]]:
        """Return the pods of the job that are not ending."""
        items = self.kubectl.json("-n", _JOB_NAMESPACE, "get", "pods", "-l", f"regatta/job={self.job.id}")["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def replica_pod(self, name: str) -> str:
        """Return the name of the pod of a replica, such as trainer-0."""
        role, _, index = name.rpartition("-")
        wanted = {names.ROLE_LABEL: _ROLES[role], names.INDEX_LABEL: index}
        (found,) = [pod for pod in self.replica_pods() if wanted.items() <= pod["metadata"]["labels"].items()]
        return str(found["metadata"]["name"])

    def leader(self) -> str:
        """Return the pod of the controller that leads."""
        lease = self.kubectl.json("-n", SYSTEM, "get", "lease", "paddlejob-controller")
        holder = str(lease["spec"]["holderIdentity"])
        names = [pod["metadata"]["name"] for pod in self.installation.pods("paddlejob-controller")]
        (found,) = [name for name in names if name in holder]
        return str(found)

    def is_ready(self) -> bool:
        """Return whether all workloads and all replicas of the job are ready."""
        workloads = self.kubectl.json("-n", SYSTEM, "get", _WORKLOADS)["items"]
        return all(map(_is_rolled_out, workloads)) and self._job_is_whole()

    def _job_is_whole(self) -> bool:
        pods = self.replica_pods()
        roles = self.client.jobs.specification(self.job.id)["roles"]
        expected = sum(int(role["replicas"]) for role in roles.values())
        return len(pods) == expected and all(pod["status"].get("phase") == "Running" for pod in pods)

    def wait_until_ready(self) -> float:
        """Return the Unix time at which everything was ready."""
        until("everything is ready", self._is_ready_or_away, READY_SECONDS, every=0.5, story=self.story)
        return time.time()

    def _is_ready_or_away(self) -> bool:
        try:
            return self.is_ready()
        except PortalError:
            return False

    def story(self) -> str:
        """Return the pods, for the message of a failed wait."""
        return self.kubectl("get", "pods", "--all-namespaces")


def _is_rolled_out(workload: dict[str, Any]) -> bool:
    status, wanted = workload["status"], workload["spec"]["replicas"]
    is_seen = status.get("observedGeneration") == workload["metadata"]["generation"]
    updated = status.get("updatedReplicas", 0) == wanted
    return bool(is_seen and updated and status.get("readyReplicas", 0) == wanted == status.get("replicas", 0))
