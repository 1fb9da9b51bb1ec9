"""Jobs of the portal, and its example jobs."""

from __future__ import annotations

import builtins
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from regatta.errors import Missing, NotFinished
from regatta.http import Http
from regatta.job import Job
from regatta.paths import segment
from regatta.resources.account import Namespaces
from regatta.resources.artifacts import Artifacts
from regatta.resources.streams import POLL_SECONDS, Follower, Logs, Metrics

# The portal answers when the trainers stand, or after some seconds.
_PAUSE_SECONDS = 30.0


class Jobs:
    """Jobs that the account may see. ``logs``, ``metrics`` and ``artifacts`` are those of one job, named by its id.

    A namespace that is not given is the default one. ``clock`` returns monotonic seconds.
    """

    def __init__(
        self, http: Http, namespaces: Namespaces, sleep: Callable[[float], None], clock: Callable[[], float]
    ) -> None:
        self._http = http
        self._namespaces = namespaces
        self._sleep = sleep
        self._clock = clock
        follower = Follower(lambda job_id: self.get(job_id).ended, sleep)
        self.logs = Logs(http, follower)
        self.metrics = Metrics(http, follower)
        self.artifacts = Artifacts(http)

    def submit(self, spec: Mapping[str, Any], *, namespace: str = "", key: str = "") -> Job:
        """Submit a job. ``key`` makes the call idempotent: the same key returns the same job.

        Raises QuotaExceeded if the job can never fit, Refused (with ``fields``) if the specification is invalid.
        """
        path = f"/api/v1/namespaces/{segment(namespace or self._namespaces.default())}/jobs"
        return self._job(self._http.post(path, spec, headers={"Idempotency-Key": key or str(uuid.uuid4())}))

    def preview(self, spec: Mapping[str, Any], *, namespace: str = "") -> dict[str, Any]:
        """Return the expected outcome of a submission: ``{"verdict", "reason", "numbers", "plan"}``. Submits
        nothing."""
        path = f"/api/v1/namespaces/{segment(namespace or self._namespaces.default())}/jobs"
        return dict(self._http.post(path, spec, dry_run="true"))

    def list(
        self, namespace: str = "", *, state: str | None = None, owner: str | None = None, query: str | None = None
    ) -> Iterator[Job]:
        """Yield the jobs of a namespace, newest first. Pages are fetched on demand."""
        path = f"/api/v1/namespaces/{segment(namespace or self._namespaces.default())}/jobs"
        yield from map(self._job, self._http.pages(path, state=state, owner=owner, q=query))

    def get(self, job_id: str) -> Job:
        return self._job(self._http.get(f"/api/v1/jobs/{segment(job_id)}"))

    def _job(self, body: Mapping[str, Any]) -> Job:
        return Job.from_json(body, self)

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Wait until the job has ended and return it. Raises NotFinished after ``timeout`` seconds."""
        deadline = None if timeout is None else self._clock() + timeout
        while not (job := self.get(job_id)).ended:
            if deadline is not None and self._clock() >= deadline:
                raise NotFinished(f"The job is still {job.state} after {timeout:g} s. {job.why}".strip())
            self._sleep(POLL_SECONDS)
        return job

    def sleep(self, seconds: float) -> None:
        """Wait between two polls."""
        self._sleep(seconds)

    def pause(self, job_id: str) -> Job:
        """Pause a running job. All its trainers stand once ``raw["pause"]["done"]`` is true."""
        return self._job(self._http.post(f"/api/v1/jobs/{segment(job_id)}/pause", timeout=_PAUSE_SECONDS))

    def resume(self, job_id: str) -> Job:
        """Let a paused job go on."""
        return self._job(self._http.post(f"/api/v1/jobs/{segment(job_id)}/resume", timeout=_PAUSE_SECONDS))

    def cancel(self, job_id: str) -> Job:
        """Request cancellation of a job. Its state shows when it has ended."""
        self._http.post(f"/api/v1/jobs/{segment(job_id)}/cancel")
        return self.get(job_id)

    def delete(self, job_id: str) -> None:
        """Delete a job that has ended, with all its data. Raises Refused if it has not ended."""
        self._http.delete(f"/api/v1/jobs/{segment(job_id)}")

    def retry(self, job_id: str) -> Job:
        """Run a job that has ended again, as its next attempt."""
        return self._job(self._http.post(f"/api/v1/jobs/{segment(job_id)}/retry"))

    def stacks(self, job_id: str) -> dict[str, Any]:
        """Return the stacks of all threads of all running replicas: ``{"spread_ms", "replicas", "groups"}``."""
        return dict(self._http.post(f"/api/v1/jobs/{segment(job_id)}/stacks"))

    def flamegraph(
        self, job_id: str, seconds: float = 10.0, replicas: builtins.list[str] | None = None
    ) -> dict[str, Any]:
        """Record where replicas spend their time, for 1 to 60 seconds; ``None``: all replicas.

        Returns ``{"seconds", "replicas"}``, for each replica with ``stacks``: counts of folded stacks.
        """
        body = {"seconds": seconds, "replicas": replicas}
        return dict(self._http.post(f"/api/v1/jobs/{segment(job_id)}/flamegraph", body, timeout=seconds + 30.0))

    def hold(
        self, job_id: str, seconds: int = 900, replicas: builtins.list[str] | None = None
    ) -> builtins.list[dict[str, Any]]:
        """Hold programs of running replicas that end with an exception from now on, for up to 4 hours; 0: hold none.

        A program that is held already is held for that long from now on. ``None``: all replicas. Returns for each
        ``{"replica", "held", "note"}``.
        """
        body = {"seconds": seconds, "replicas": replicas}
        return list(self._http.post(f"/api/v1/jobs/{segment(job_id)}/hold", body)["replicas"])

    def release(self, job_id: str, replicas: builtins.list[str] | None = None) -> builtins.list[dict[str, Any]]:
        """Let programs end that are held at their exception. Returns for each ``{"replica", "held", "note"}``."""
        body = {"replicas": replicas}
        return list(self._http.post(f"/api/v1/jobs/{segment(job_id)}/release", body)["replicas"])

    def variables(self, job_id: str, replica: str) -> dict[str, Any]:
        """Return the frames of a held program: ``{"exception", "message", "complete", "frames"}``.

        Each frame has ``file``, ``line``, ``function`` and ``variables`` (``name``, ``type``, ``size``, ``shape``,
        ``text``), the innermost frame first.
        """
        return dict(self._http.post(f"/api/v1/jobs/{segment(job_id)}/variables", {"replica": replica}))

    def scale(self, job_id: str, **replicas: int) -> Job:
        """Change the desired replicas: ``scale(id, trainer=4)``, between the role's min and max."""
        return self._job(self._http.post(f"/api/v1/jobs/{segment(job_id)}/scale", replicas))

    def specification(self, job_id: str) -> dict[str, Any]:
        """Return the specification of a job, including its files, to be changed and submitted as another job."""
        return dict(self._http.post(f"/api/v1/jobs/{segment(job_id)}/clone")["spec"])

    def events(self, job_id: str) -> builtins.list[dict[str, Any]]:
        """Return the whole timeline of the job, oldest first. Fetches all pages, from the newest to the oldest."""
        pages: list[list[dict[str, Any]]] = []
        before: str | None = None
        while not pages or before:
            body = self._http.get(f"/api/v1/jobs/{segment(job_id)}/events", before=before)
            pages.append(body["events"])
            before = body.get("older")
        return [event for page in reversed(pages) for event in page]

    def page_url(self, job: Job) -> str:
        """Return the URL of the job's page."""
        return f"{self._http.server}/n/{segment(job.namespace)}/jobs/{segment(job.id)}"


class Examples:
    """Example jobs of the portal."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self) -> builtins.list[dict[str, Any]]:
        """Return the example jobs of the portal: ``{"name", "title", "spec"}``."""
        return list(self._http.get("/api/v1/examples")["results"])

    def get(self, name: str) -> dict[str, Any]:
        """Return the specification of an example by its name or its job's. Raises Missing with the known names."""
        found = {key: each["spec"] for each in self.list() for key in (each["spec"].get("name"), each["name"])}
        if name not in found:
            raise Missing(
                f"There is no example {name!r}. Available examples: {', '.join(sorted(filter(None, found)))}."
            )
        return dict(found[name])
