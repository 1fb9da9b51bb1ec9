"""The portal's API as methods of a client."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from regatta import config
from regatta.data import DataSets
from regatta.errors import Missing, NotFinished, PortalError, Unreachable
from regatta.http import Http
from regatta.job import Job
from regatta.models import Artifact, Line, Page, Point, PointPage, Version
from regatta.series import Chart, Series
from regatta.transfer import SILENT, Fetcher, Progress, Sender

POLL_SECONDS = 0.5
PAGE = 1000
ROWS = 500  # items per page of a list

AnyPage = TypeVar("AnyPage", Page, PointPage)


class Client:
    """Authenticated client of one portal. May be used by several threads at once.

    Without ``server`` and ``token`` it uses the environment or the user's file, as written by `regatta login`
    (``regatta.config``).

    ``clock`` returns monotonic seconds and ``sleep`` waits; tests replace both.
    """

    def __init__(
        self,
        server: str = "",
        token: str = "",
        *,
        namespace: str = "",
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not server:
            kept = config.in_use()
            server, token, namespace = kept.server, token or kept.token, namespace or kept.namespace
        self.server = server.rstrip("/")
        self._http = Http(server, token, transport=transport, sleep=sleep)
        self._namespace = namespace
        self.data = DataSets(self._http)
        self._sleep = sleep
        self._clock = clock

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.close()

    def pause(self, seconds: float) -> None:
        """Wait between two polls."""
        self._sleep(seconds)

    # --- account -----------------------------------------------------------------------------------------------------
    def token(self, username: str, password: str, name: str, *, code: str | None = None) -> str:
        """Create a token of that account and return it. ``code`` is that of its second factor. Raises NotSignedIn."""
        body = {"username": username, "password": password, "name": name, **({"code": code} if code else {})}
        return str(self._http.post("/api/v1/auth/token", body)["token"])

    def me(self) -> dict[str, Any]:
        """Return ``{"username", "is_admin", "namespaces": [{"name", "role"}]}``."""
        return dict(self._http.get("/api/v1/me"))

    def own_namespace(self) -> str:
        """Return the default namespace: the client's, else the one named like the account, else the first."""
        if self._namespace:
            return self._namespace
        me = self.me()
        names = [str(namespace["name"]) for namespace in me["namespaces"]]
        if not names:
            raise Missing("You are not a member of any namespace. Ask an admin to add you to one.")
        return me["username"] if me["username"] in names else names[0]

    def namespaces(self) -> Iterator[dict[str, Any]]:
        """Yield the namespaces that the account may see."""
        yield from self._http.pages("/api/v1/namespaces")

    # --- tokens ------------------------------------------------------------------------------------------------------
    def exchange(self, code: str, verifier: str) -> str:
        """Exchange the code of a browser sign-in for a token. Raises Refused if the code was used or has expired."""
        return str(self._http.post("/api/v1/auth/exchange", {"code": code, "verifier": verifier})["token"])

    def revoke_own_token(self) -> None:
        """Revoke the token of this client."""
        self._http.delete("/api/v1/tokens/current")

    def tokens(self) -> Iterator[dict[str, Any]]:
        """Yield the account's tokens, without their secrets."""
        yield from self._http.pages("/api/v1/tokens")

    def create_token(self, name: str, *, scopes: Sequence[str] = (), days: int | None = None) -> dict[str, Any]:
        """Create a token of the account. Its secret is in ``token`` and is returned only once."""
        return dict(self._http.post("/api/v1/tokens", {"name": name, "scopes": list(scopes), "days": days}))

    def revoke_token(self, token_id: str) -> None:
        """Revoke one of the account's tokens."""
        self._http.delete(f"/api/v1/tokens/{_part(token_id)}")

    def quota(self, namespace: str) -> dict[str, Any]:
        """Return ``{"limits", "reserved", "used", "headroom"}``, each by resource."""
        return dict(self._http.get(f"/api/v1/namespaces/{_part(namespace)}/quota"))

    # --- jobs --------------------------------------------------------------------------------------------------------
    def submit(self, spec: Mapping[str, Any], *, namespace: str = "", key: str = "") -> Job:
        """Submit a job. ``key`` makes the call idempotent: the same key returns the same job.

        Raises QuotaExceeded if the job can never fit, Refused (with ``fields``) if the specification is invalid.
        """
        path = f"/api/v1/namespaces/{_part(namespace or self.own_namespace())}/jobs"
        return self._job(self._http.post(path, spec, headers={"Idempotency-Key": key or str(uuid.uuid4())}))

    def examples(self) -> list[dict[str, Any]]:
        """Return the example jobs of the portal: ``{"name", "title", "spec"}``."""
        return list(self._http.get("/api/v1/examples")["results"])

    def example(self, name: str) -> dict[str, Any]:
        """Return the specification of an example by its name or its job's. Raises Missing with the known names."""
        found = {key: each["spec"] for each in self.examples() for key in (each["spec"].get("name"), each["name"])}
        if name not in found:
            raise Missing(
                f"There is no example {name!r}. Available examples: {', '.join(sorted(filter(None, found)))}."
            )
        return dict(found[name])

    def job(self, job_id: str) -> Job:
        return self._job(self._http.get(f"/api/v1/jobs/{_part(job_id)}"))

    def _job(self, body: Mapping[str, Any]) -> Job:
        return Job.from_json(body, self)

    def jobs(
        self, namespace: str = "", *, state: str | None = None, owner: str | None = None, query: str | None = None
    ) -> Iterator[Job]:
        """Yield the jobs of a namespace, newest first. Pages are fetched on demand."""
        path = f"/api/v1/namespaces/{_part(namespace or self.own_namespace())}/jobs"
        yield from map(self._job, self._http.pages(path, state=state, owner=owner, q=query))

    def cancel(self, job_id: str) -> Job:
        """Request cancellation of a job. Its state shows when it has ended."""
        self._http.post(f"/api/v1/jobs/{_part(job_id)}/cancel")
        return self.job(job_id)

    def delete(self, job_id: str) -> None:
        """Delete a job that has ended, with all its data. Raises Refused if it has not ended."""
        self._http.delete(f"/api/v1/jobs/{_part(job_id)}")

    def retry(self, job_id: str) -> Job:
        """Run a job that has ended again, as its next attempt."""
        return self._job(self._http.post(f"/api/v1/jobs/{_part(job_id)}/retry"))

    def scale(self, job_id: str, **replicas: int) -> Job:
        """Change the desired replicas: ``scale(id, trainer=4)``, between the role's min and max."""
        return self._job(self._http.post(f"/api/v1/jobs/{_part(job_id)}/scale", replicas))

    def specification(self, job_id: str) -> dict[str, Any]:
        """Return the specification of a job, including its files, to be changed and submitted as another job."""
        return dict(self._http.post(f"/api/v1/jobs/{_part(job_id)}/clone")["spec"])

    def preview(self, spec: Mapping[str, Any], *, namespace: str = "") -> dict[str, Any]:
        """Return the expected outcome of a submission: ``{"verdict", "reason", "numbers", "plan"}``. Submits
        nothing."""
        path = f"/api/v1/namespaces/{_part(namespace or self.own_namespace())}/jobs"
        return dict(self._http.post(path, spec, dry_run="true"))

    def page_of(self, job: Job) -> str:
        """Return the URL of the job's page."""
        return f"{self.server}/n/{_part(job.namespace)}/jobs/{_part(job.id)}"

    def wait(self, job_id: str, timeout: float | None = None) -> Job:
        """Wait until the job has ended and return it. Raises NotFinished after ``timeout`` seconds."""
        deadline = None if timeout is None else self._clock() + timeout
        while not (job := self.job(job_id)).ended:
            if deadline is not None and self._clock() >= deadline:
                raise NotFinished(f"The job is still {job.state} after {timeout:g} s. {job.why}".strip())
            self._sleep(POLL_SECONDS)
        return job

    # --- streams -----------------------------------------------------------------------------------------------------
    def page(
        self,
        job_id: str,
        after: int = 0,
        *,
        replica: str | None = None,
        since: datetime | None = None,
        limit: int = PAGE,
    ) -> Page:
        """Return lines strictly after the cursor; -1 means the last ones."""
        path = f"/api/v1/jobs/{_part(job_id)}/logs"
        moment = since.isoformat() if since else None
        return Page.from_json(self._http.get(path, after=after, limit=limit, replica=replica, since=moment))

    def pages(
        self, job_id: str, after: int = 0, *, replica: str | None = None, since: datetime | None = None
    ) -> Iterator[Page]:
        """Yield the pages that exist now, at least one."""
        while True:
            page = self.page(job_id, after, replica=replica, since=since)
            yield page
            if not page.more or page.last <= after:
                return
            after = page.last

    def logs(
        self, job_id: str, after: int = 0, *, replica: str | None = None, since: datetime | None = None
    ) -> Iterator[Line]:
        """Yield the lines that exist now."""
        for page in self.pages(job_id, after, replica=replica, since=since):
            yield from page.lines

    def tail(self, job_id: str, count: int, *, replica: str | None = None) -> list[Line]:
        """Return the last ``count`` lines that exist now."""
        found: list[Line] = []
        before: int | None = None
        while len(found) < count:
            path = f"/api/v1/jobs/{_part(job_id)}/logs"
            limit = min(PAGE, count - len(found))
            body = self._http.get(path, after=-1, before=before, limit=limit, replica=replica)
            found = [*Page.from_json(body).lines, *found]
            before = int(body["first"])
            if not body["more"] or before <= 1:
                break
        return found

    def last_line(self, job_id: str) -> int:
        """Return the cursor after all lines that exist now."""
        return self.page(job_id, -1, limit=1).last

    def follow(
        self,
        job_id: str,
        after: int = 0,
        *,
        replica: str | None = None,
        since: datetime | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[Line]:
        """Yield the lines as they arrive, until the job has ended and all are read, or ``enough()`` is true.

        Because of the cursor, every line is yielded once, whatever happens to the connection. Permanent errors are
        raised.
        """
        read = partial(self.pages, job_id, replica=replica, since=since)
        for page in self._until_the_end(job_id, read, after, enough):
            yield from page.lines

    def points(self, job_id: str, after: int = 0, *, keys: str | None = None) -> Iterator[Point]:
        """Yield every value that exists now, as reported. ``keys``: names of metrics, separated by commas."""
        for page in self._point_pages(job_id, after, keys=keys):
            yield from page.points

    def follow_points(
        self,
        job_id: str,
        after: int = 0,
        *,
        keys: str | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[Point]:
        """Yield the values as they are reported, each once, until the job has ended or ``enough()`` is true."""
        for page in self._until_the_end(job_id, partial(self._point_pages, job_id, keys=keys), after, enough):
            yield from page.points

    def _point_pages(self, job_id: str, after: int = 0, *, keys: str | None = None) -> Iterator[PointPage]:
        while True:
            body = self._http.get(f"/api/v1/jobs/{_part(job_id)}/metrics/points", after=after, limit=PAGE, keys=keys)
            page = PointPage.from_json(body)
            yield page
            if not page.more or page.last <= after:
                return
            after = page.last

    def _until_the_end(
        self, job_id: str, read: Callable[[int], Iterator[AnyPage]], after: int, enough: Callable[[], bool]
    ) -> Iterator[AnyPage]:
        """Yield the pages of a stream as they arrive."""
        while not enough():
            # Read before the pages: the data of an ended job is complete when its state says so.
            ended = self.job(job_id).ended
            for page in read(after):
                after = max(after, page.last)
                yield page
            if ended:
                return
            self._sleep(POLL_SECONDS)

    def metrics(self, job_id: str, keys: str | None = None, *, buckets: int = 1000) -> dict[str, Series]:
        """Return the metrics by name, reduced to at most ``buckets`` each."""
        return self.chart(job_id, keys, buckets=buckets).series

    def chart(self, job_id: str, keys: str | None = None, *, buckets: int = 1000) -> Chart:
        """Return the metrics, and the names of those that the answer omits: request them with ``keys``."""
        body = self._http.get(f"/api/v1/jobs/{_part(job_id)}/metrics", keys=keys, buckets=buckets)
        return Chart.from_json(body)

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """Return the whole timeline of the job, oldest first. Fetches all pages, from the newest to the oldest."""
        pages: list[list[dict[str, Any]]] = []
        before: str | None = None
        while not pages or before:
            body = self._http.get(f"/api/v1/jobs/{_part(job_id)}/events", before=before)
            pages.append(body["events"])
            before = body.get("older")
        return [event for page in reversed(pages) for event in page]

    # --- datasets ----------------------------------------------------------------------------------------------------
    def upload(self, full_name: str, *sources: Path | str, fresh: bool = False, progress: Progress = SILENT) -> Version:
        """Upload files and folders as a new version of ``namespace/name`` and seal it; resumes an open version."""
        sender = Sender(self.data, self._sleep, progress)
        return sender.upload(full_name, [Path(source) for source in sources], fresh=fresh)

    def fetch(
        self, full_name: str, target: Path | str, *, version: int | None = None, progress: Progress = SILENT
    ) -> list[Path]:
        """Download a version of a dataset (default: the newest) to a folder; resumes an interrupted download."""
        return Fetcher(self.data, self._http, self._sleep, progress).download(full_name, Path(target), version)

    # --- artifacts ---------------------------------------------------------------------------------------------------
    def artifacts(self, job_id: str) -> list[Artifact]:
        """Return all artifacts, fetched page by page."""
        found: list[Artifact] = []
        cursor: str | None = None
        while True:
            body = self._http.get(f"/api/v1/jobs/{_part(job_id)}/artifacts", limit=ROWS, cursor=cursor)
            found += map(Artifact.from_json, body["artifacts"])
            # Older portals have no pages and return everything at once.
            cursor = body.get("next")
            if not cursor:
                return found

    def download(self, job_id: str, name: str, target: Path) -> Artifact:
        """Download an artifact to ``target``: completely and with the right hash, or not at all."""
        found = next((artifact for artifact in self.artifacts(job_id) if artifact.name == name), None)
        if found is None:
            raise Missing(f"The job has no artifact {name!r}.")
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            digest = self._fetch(f"/api/v1/jobs/{_part(job_id)}/artifacts/{quote(name)}", part)
            if digest != found.sha256:
                raise Unreachable(f"The download of {name!r} is corrupt. Try again.")
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
