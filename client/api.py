"""The portal's calls as methods."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from client.errors import Missing, NotFinished, PortalError, Unreachable
from client.http import Http
from client.models import Artifact, Job, Line, Page, Series

POLL_SECONDS = 0.5
PAGE = 1000


class Client:
    """A signed-in view of one portal. Safe to make many of; not to be shared between threads.

    ``clock`` and ``sleep`` are monotonic seconds and what waits; tests pass their own.
    """

    def __init__(
        self,
        server: str,
        token: str = "",
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._http = Http(server, token, transport=transport, sleep=sleep)
        self._sleep = sleep
        self._clock = clock

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.close()

    # --- who ---------------------------------------------------------------------------------------------------------
    def token(self, username: str, password: str, name: str) -> str:
        """A new token of that account. Raises NotSignedIn where the password is wrong."""
        body = {"username": username, "password": password, "name": name}
        return str(self._http.post("/api/v1/auth/token", body)["token"])

    def me(self) -> dict[str, Any]:
        """``{"username", "is_admin", "namespaces": [{"name", "role"}]}``."""
        return dict(self._http.get("/api/v1/me"))

    def own_namespace(self) -> str:
        """The namespace that is meant when none is named: the one called like the account, else the first."""
        me = self.me()
        names = [str(namespace["name"]) for namespace in me["namespaces"]]
        if not names:
            raise Missing("You are in no namespace. Ask an admin of the portal to add you to one.")
        return me["username"] if me["username"] in names else names[0]

    def quota(self, namespace: str) -> dict[str, Any]:
        """``{"limits", "reserved", "used", "headroom"}``, each by resource."""
        return dict(self._http.get(f"/api/v1/namespaces/{_part(namespace)}/quota"))

    # --- jobs --------------------------------------------------------------------------------------------------------
    def submit(self, spec: Mapping[str, Any], *, namespace: str = "", key: str = "") -> Job:
        """Submit a job. ``key`` makes the call safe to repeat: the same key gives the same job.

        Raises QuotaExceeded where it can never fit, Refused (with ``fields``) where the specification is wrong.
        """
        path = f"/api/v1/namespaces/{_part(namespace or self.own_namespace())}/jobs"
        return Job.from_json(self._http.post(path, spec, headers={"Idempotency-Key": key or str(uuid.uuid4())}))

    def examples(self) -> list[dict[str, Any]]:
        """The example jobs that the portal ships: ``{"name", "title", "spec"}``."""
        return list(self._http.get("/api/v1/examples")["results"])

    def example(self, name: str) -> dict[str, Any]:
        """The specification of an example, by its name or its job's. Raises Missing with the names that there are."""
        found = {key: each["spec"] for each in self.examples() for key in (each["spec"].get("name"), each["name"])}
        if name not in found:
            raise Missing(f"There is no example {name!r}. There are: {', '.join(sorted(filter(None, found)))}.")
        return dict(found[name])

    def job(self, job_id: str) -> Job:
        return Job.from_json(self._http.get(f"/api/v1/jobs/{_part(job_id)}"))

    def jobs(self, namespace: str = "", *, state: str | None = None, query: str | None = None) -> Iterator[Job]:
        """The jobs of a namespace, newest first; pages are fetched as they are needed."""
        path = f"/api/v1/namespaces/{_part(namespace or self.own_namespace())}/jobs"
        cursor: str | None = None
        while True:
            page = self._http.get(path, state=state, q=query, cursor=cursor)
            yield from map(Job.from_json, page["results"])
            cursor = page["next"]
            if not cursor:
                return

    def cancel(self, job_id: str) -> Job:
        """Ask for the end of a job. It has ended when its state says so."""
        self._http.post(f"/api/v1/jobs/{_part(job_id)}/cancel")
        return self.job(job_id)

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """The job when it has ended. Raises NotFinished after ``timeout`` seconds."""
        deadline = None if timeout is None else self._clock() + timeout
        while not (job := self.job(job_id)).ended:
            if deadline is not None and self._clock() >= deadline:
                raise NotFinished(f"The job is still {job.state} after {timeout:g} s. {job.why}".strip())
            self._sleep(POLL_SECONDS)
        return job

    # --- streams -----------------------------------------------------------------------------------------------------
    def page(self, job_id: str, after: int = 0, *, replica: str | None = None, limit: int = PAGE) -> Page:
        """Lines strictly after the cursor."""
        path = f"/api/v1/jobs/{_part(job_id)}/logs"
        return Page.from_json(self._http.get(path, after=after, limit=limit, replica=replica))

    def pages(self, job_id: str, after: int = 0, *, replica: str | None = None) -> Iterator[Page]:
        """The pages that are there now, at least one."""
        while True:
            page = self.page(job_id, after, replica=replica)
            yield page
            if not page.more or page.last <= after:
                return
            after = page.last

    def logs(self, job_id: str, after: int = 0, *, replica: str | None = None) -> Iterator[Line]:
        """The lines that are there now."""
        for page in self.pages(job_id, after, replica=replica):
            yield from page.lines

    def follow(self, job_id: str, after: int = 0, *, replica: str | None = None) -> Iterator[Line]:
        """The lines as they come, until the job has ended and all are read.

        The cursor makes every line come once, whatever happens to the connection; what cannot be mended raises.
        """
        while True:
            # Asked for before the lines: what an ended job printed is all there by the time it says so.
            ended = self.job(job_id).ended
            for page in self.pages(job_id, after, replica=replica):
                after = max(after, page.last)
                yield from page.lines
            if ended:
                return
            self._sleep(POLL_SECONDS)

    def metrics(self, job_id: str, keys: str | None = None, *, buckets: int = 1000) -> dict[str, Series]:
        """The metrics by name, reduced to at most ``buckets`` each."""
        body = self._http.get(f"/api/v1/jobs/{_part(job_id)}/metrics", keys=keys, buckets=buckets)
        return {name: Series.from_json(series) for name, series in body["series"].items()}

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """The job's timeline, oldest first."""
        body = self._http.get(f"/api/v1/jobs/{_part(job_id)}/events")
        return list(body.get("events", body.get("results", ())))

    # --- artifacts ---------------------------------------------------------------------------------------------------
    def artifacts(self, job_id: str) -> list[Artifact]:
        body = self._http.get(f"/api/v1/jobs/{_part(job_id)}/artifacts")
        return [Artifact.from_json(artifact) for artifact in body["artifacts"]]

    def download(self, job_id: str, name: str, target: Path) -> Artifact:
        """Fetch an artifact to ``target``: whole and with the right hash, or not at all."""
        found = next((artifact for artifact in self.artifacts(job_id) if artifact.name == name), None)
        if found is None:
            raise Missing(f"The job has left no artifact {name!r}.")
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            digest = self._fetch(f"/api/v1/jobs/{_part(job_id)}/artifacts/{quote(name)}", part)
            if digest != found.sha256:
                raise Unreachable(f"{name!r} arrived damaged. Try again.")
            part.replace(target)
        except OSError as error:
            raise PortalError(f"{target} cannot be written: {error.strerror or error}.") from error
        finally:
            part.unlink(missing_ok=True)
        return found

    def _fetch(self, path: str, part: Path) -> str:
        digest = hashlib.sha256()
        with self._http.stream(path) as response, part.open("wb") as file:
            for chunk in response.iter_bytes():
                digest.update(chunk)
                file.write(chunk)
        return digest.hexdigest()


def _part(text: str) -> str:
    return quote(text, safe="")
