"""A job as an object: its data from the portal and its operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regatta.errors import EXIT_NOT_FINISHED, EXIT_OF_STATE
from regatta.models import Artifact, Line, Point, PointPage, Replica
from regatta.series import Series

if TYPE_CHECKING:
    from regatta.resources.jobs import Jobs
    from regatta.terminal.watch import Watch
    from regatta.watching.callbacks import Callback


@dataclass(frozen=True)
class Job:
    """Job in the state of the last request; ``refresh`` requests it again.

    Times are ISO 8601 in UTC, None if not reached yet. ``raw`` is the complete data from the portal.
    """

    id: str
    name: str
    namespace: str
    state: str
    reason: str
    why: str
    attempt: int
    created: str | None
    started: str | None
    finished: str | None
    replicas: tuple[Replica, ...]
    raw: Mapping[str, Any] = field(repr=False, compare=False, default_factory=dict)
    jobs: Jobs | None = field(repr=False, compare=False, default=None)

    @classmethod
    def from_json(cls, body: Mapping[str, Any], jobs: Jobs | None = None) -> Job:
        return cls(
            id=body["id"],
            name=body["name"],
            namespace=body["namespace"],
            state=body["state"],
            reason=body.get("reason") or "",
            why=body.get("why") or "",
            attempt=int(body.get("attempt") or 0),
            created=body.get("created"),
            started=body.get("started"),
            finished=body.get("finished"),
            replicas=tuple(Replica.from_json(replica) for replica in body.get("replicas", ())),
            raw=body,
            jobs=jobs,
        )

    @property
    def ended(self) -> bool:
        return self.state in EXIT_OF_STATE

    @property
    def exit_code(self) -> int:
        """0 succeeded, 100 failed, 103 cancelled, 101 not finished."""
        return EXIT_OF_STATE.get(self.state, EXIT_NOT_FINISHED)

    @property
    def _jobs(self) -> Jobs:
        if self.jobs is None:
            raise ValueError("This job was not created by a Client and has no portal to query.")
        return self.jobs

    @property
    def url(self) -> str:
        """Address of the job's page."""
        return self._jobs.page_url(self)

    @property
    def code(self) -> str:
        """Program of the job, as it was submitted. Empty for a job that runs an image or a command without files."""
        spec = self._jobs.specification(self.id)
        entrypoint, files = spec.get("entrypoint"), spec.get("files") or {}
        words = entrypoint.split() if isinstance(entrypoint, str) else list(entrypoint or ())
        return next((str(files[word]) for word in words if word in files), "")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"Job {self.name} in {self.namespace}: {self.state}. Page: {self.url}")

    # --- Control -----------------------------------------------------------------------------------------------------
    def refresh(self) -> Job:
        """Return the job in its current state."""
        return self._jobs.get(self.id)

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job has ended and return it. Raises NotFinished after ``timeout`` seconds."""
        return self._jobs.wait(self.id, timeout)

    def sleep(self, seconds: float) -> None:
        """Wait as the client does."""
        self._jobs.sleep(seconds)

    def pause(self) -> Job:
        """Stop all trainers between two steps, in sync mode at the same one. Their quota goes on counting."""
        return self._jobs.pause(self.id)

    def resume(self) -> Job:
        """Let a paused job go on."""
        return self._jobs.resume(self.id)

    def cancel(self) -> Job:
        return self._jobs.cancel(self.id)

    def delete(self) -> None:
        """Delete the job with all its data. It must have ended."""
        self._jobs.delete(self.id)

    def retry(self) -> Job:
        """Run the job again, as its next attempt."""
        return self._jobs.retry(self.id)

    def hold(self, seconds: int = 900) -> None:
        """Hold programs that end with an exception from now on, so that their variables can be looked at."""
        self._jobs.hold(self.id, seconds)

    def release(self) -> None:
        """Let the programs end that are held at their exception."""
        self._jobs.release(self.id)

    def variables(self, replica: str = "trainer-0") -> dict[str, Any]:
        """Return the frames of a held program with their variables: see ``Jobs.variables``."""
        return self._jobs.variables(self.id, replica)

    def scale(self, **replicas: int) -> Job:
        """Change the desired replicas: ``job.scale(trainer=4)``."""
        return self._jobs.scale(self.id, **replicas)

    # --- Data --------------------------------------------------------------------------------------------------------
    def logs(self, *, follow: bool = False, after: int = 0, replica: str | None = None) -> Iterator[Line]:
        """Yield the lines so far; with ``follow`` until the job has ended, each exactly once, even after reconnects."""
        read = self._jobs.logs.follow if follow else self._jobs.logs.read
        return read(self.id, after, replica=replica)

    def metrics(self, key: str, *, buckets: int = 1000) -> Series:
        """Return one metric so far, empty if there is none. See ``.to_numpy()`` and ``.to_pandas()``."""
        return self._jobs.metrics.series(self.id, key, buckets=buckets).get(key, Series([], [], [], [], []))

    def points(self, key: str | None = None, *, follow: bool = False, after: int = 0) -> Iterator[Point]:
        """Yield every value as reported; with ``follow`` until the job has ended."""
        read = self._jobs.metrics.follow if follow else self._jobs.metrics.points
        return read(self.id, after, keys=key)

    def point_pages(self, after: int = 0) -> Iterator[PointPage]:
        """Yield the pages of points that exist now, at least one."""
        return self._jobs.metrics.pages(self.id, after)

    def last_lines(self, count: int) -> list[Line]:
        """Return the last lines of the log so far."""
        return self._jobs.logs.tail(self.id, count)

    def watch(self, on_iteration: Callback | None = None, *, after: int = 0, wait: bool = True) -> Job:
        """Show the job below the cell until it ends, and call ``on_iteration`` with each Iteration after a cursor.

        Ctrl-C ends the watching, not the job. With ``wait=False`` it returns at once, and a thread watches. Raises
        JobFailed if the job ends without success.
        """
        from regatta.watching.watching import watched

        return watched(self, on_iteration, after=after, wait=wait)

    def on(self, key: str, deed: Callable[[Point], object]) -> Watch[Point]:
        """Call ``deed`` with each value of a metric, past ones first, in a separate thread.

        The Watch ends with the job or by ``stop()``; ``wait()`` raises errors of ``deed`` and of the connection.
        """
        from regatta.terminal.watch import Watch

        return Watch(lambda enough: self._jobs.metrics.follow(self.id, keys=key, enough=enough), deed)

    def plot(self, *keys: str, live: bool = True) -> Any:
        """Return a Plotly figure of some metrics (default: cost). In a notebook it updates itself while the job runs.

        Raises NotInstalled without plotly. Without anywidget, which updating figures need, the figure is static.
        """
        from regatta.terminal.plot import figure_of

        return figure_of(self, keys or ("cost",), live=live)

    def events(self) -> list[dict[str, Any]]:
        """Return the timeline, oldest first."""
        return self._jobs.events(self.id)

    def artifacts(self) -> list[Artifact]:
        return self._jobs.artifacts.list(self.id)

    def download(self, name: str, target: Path | str) -> Artifact:
        """Download an artifact: completely and with the right hash, or not at all."""
        return self._jobs.artifacts.download(self.id, name, Path(target))

    def model(self, name: str = "") -> Any:
        """Download the model and load it: a dict of arrays for ``.npz``; nothing is unpickled.

        ``name`` is the artifact; it may be left out if only one of them is a model. A ``.pt`` file is loaded with
        ``weights_only=True`` if PyTorch is installed. Of other files the path of the download is returned. Raises
        Missing if there is no model.
        """
        from regatta.trained_model import load

        return load(self, name)
