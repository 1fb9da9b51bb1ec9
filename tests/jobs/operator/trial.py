"""Jobs that a test submits to a portal with a cluster, and waiting for their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from jobs.backends.kubernetes.manifests import WORKSPACE, pod_name
from regatta import Client
from regatta.errors import PortalError
from regatta.job import Job
from tests.jobs.operator.kube_cluster import SECONDS, Cluster
from tests.waiting import until

Found = TypeVar("Found")

# Requests of a replica, which leave capacity for other tests' pods at the same time and on the same node.
SMALL: dict[str, Any] = {"cpu": 0.05, "memory": "256Mi"}
_LAST_LINES = 8


class Trial:
    """The jobs of a test in the admin's namespace, which is ``cluster.namespace`` on the cluster."""

    def __init__(self, portal: Client, cluster: Cluster) -> None:
        self.portal, self.cluster = portal, cluster
        self.jobs: list[Job] = []

    @contextmanager
    def open(self) -> Iterator[Trial]:
        """Yield this trial; cancel its remaining jobs at the end."""
        try:
            yield self
        finally:
            for job in self.jobs:
                with suppress(PortalError):  # it has ended by itself
                    self.portal.jobs.cancel(job.id)

    def submit(self, spec: dict[str, Any]) -> Job:
        self.jobs.append(self.portal.jobs.submit(spec, namespace="admin"))
        return self.jobs[-1]

    # --- Observing a job ---------------------------------------------------------------------------------------------
    def steps(self, job: Job, replica: str) -> list[int]:
        """Return the steps that a replica of ``code.slow`` has printed."""
        lines = (line for line in self.portal.jobs.logs.read(job.id, replica=replica) if line.text.startswith("step "))
        return [int(line.text.split()[1]) for line in lines]

    def attempt(self, job: Job) -> str:
        """Return the id of the job's current attempt, from the labels of its PaddleJob."""
        found = json.loads(self.cluster.kubectl("get", "paddlejobs", "-l", f"regatta/job={job.id}", "-o", "json"))[
            "items"
        ]
        assert found, "the attempt has a PaddleJob"
        newest = max(found, key=lambda one: int(one["metadata"]["labels"]["regatta/number"]))
        return str(newest["metadata"]["labels"]["regatta/attempt"])

    def left(self, job: Job) -> str:
        """Return the names of the job's objects on the cluster."""
        return self.cluster.kubectl("get", "paddlejobs,pods,secrets", "-l", f"regatta/job={job.id}", "-o", "name")

    def kill(self, job: Job, replica: str) -> None:
        """Delete the replica's pod at once, without waiting for its processes."""
        pod = pod_name(self.attempt(job), replica)
        self.cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    def release(self, job: Job, trainer: str) -> None:
        """Let the trainer make the remaining steps of ``code.slow`` without a pause, once its pod takes commands."""
        pod = pod_name(self.attempt(job), trainer)
        self.until(f"{trainer} is released", lambda: self._touched(pod, f"{WORKSPACE}/work/enough"))

    def _touched(self, pod: str, path: str) -> bool:
        try:
            self.cluster.kubectl("exec", pod, "--", "touch", path)
        except AssertionError:  # its container is starting
            return False
        return True

    # --- Waiting -----------------------------------------------------------------------------------------------------
    def until(self, what: str, look: Callable[[], Found], seconds: float = SECONDS) -> Found:
        return until(what, look, seconds, story=self.diagnosis)

    def until_trained(self, job: Job, *replicas: str, more: int = 3) -> None:
        """Wait until each replica has made ``more`` steps more than now."""
        before = {replica: len(self.steps(job, replica)) for replica in replicas}
        for replica, count in before.items():
            self.until(
                f"{replica} makes {more} steps", lambda at=replica, seen=count: len(self.steps(job, at)) >= seen + more
            )

    def until_back(self, job: Job, replica: str, seconds: float = SECONDS) -> None:
        begins = f"{replica} recovered after"
        self.until(
            begins, lambda: any(one["text"].startswith(begins) for one in self.portal.jobs.events(job.id)), seconds
        )

    def until_nothing_is_left(self, job: Job) -> None:
        self.until("nothing is left on the cluster", lambda: not self.left(job))

    # --- Messages of failed waits ------------------------------------------------------------------------------------
    def diagnosis(self) -> str:
        return "\n".join([*(line for job in self.jobs for line in self._job_report(job)), self.cluster.diagnosis()])

    def _job_report(self, job: Job) -> Iterator[str]:
        now = self.portal.jobs.get(job.id)
        yield f"== {now.name}: {now.state} ({now.reason}), attempt {now.attempt}: {now.why}"
        for replica in now.replicas:
            yield f"   {replica.name} {replica.state} {replica.why}"
        for event in self.portal.jobs.events(job.id):
            yield f"   {event['time']} {event['text']}"
        for replica in now.replicas:
            for line in self.portal.jobs.logs.tail(job.id, _LAST_LINES, replica=replica.name):
                yield f"   {line.time} {replica.name} | {line.text}"
