"""A job as a program holds it: what the portal told of it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regatta.errors import EXIT_NOT_FINISHED, EXIT_OF_STATE
from regatta.models import Artifact, Line, Point, Replica
from regatta.series import Series

if TYPE_CHECKING:
    from regatta.api import Client
    from regatta.terminal.watch import Watch


@dataclass(frozen=True)
class Job:
    """A job as it stood when it was asked for; ``refresh`` asks again. Times are ISO 8601 in UTC, None where it has not
    come to that. ``raw`` is all that the portal told."""

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
    portal: Client | None = field(repr=False, compare=False, default=None)

    @classmethod
    def from_json(cls, body: Mapping[str, Any], portal: Client | None = None) -> Job:
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
            portal=portal,
        )

    @property
    def ended(self) -> bool:
        return self.state in EXIT_OF_STATE

    @property
    def exit_code(self) -> int:
        """0 succeeded, 100 failed, 103 cancelled, 101 not finished."""
        return EXIT_OF_STATE.get(self.state, EXIT_NOT_FINISHED)

    @property
    def _portal(self) -> Client:
        if self.portal is None:
            raise ValueError("This job was not created by a Client and has no portal to query.")
        return self.portal

    # --- The job itself ----------------------------------------------------------------------------------------------
    def refresh(self) -> Job:
        """The job as it stands now."""
        return self._portal.job(self.id)

    def wait(self, timeout: float | None = None) -> Job:
        """The job when it has ended. Raises NotFinished after ``timeout`` seconds."""
        return self._portal.wait(self.id, timeout)

    def pause(self, seconds: float) -> None:
        """Let time pass as the client does."""
        self._portal.pause(seconds)

    def cancel(self) -> Job:
        return self._portal.cancel(self.id)

    def delete(self) -> None:
        """Delete the job with everything it kept. It must have ended."""
        self._portal.delete(self.id)

    def retry(self) -> Job:
        """The same job again, as its next attempt."""
        return self._portal.retry(self.id)

    def scale(self, **replicas: int) -> Job:
        """``job.scale(trainer=4)``: so many from now on."""
        return self._portal.scale(self.id, **replicas)

    # --- What it tells -----------------------------------------------------------------------------------------------
    def logs(self, *, follow: bool = False, after: int = 0, replica: str | None = None) -> Iterator[Line]:
        """The lines so far; with ``follow`` until the job has ended, each exactly once whatever happens between."""
        read = self._portal.follow if follow else self._portal.logs
        return read(self.id, after, replica=replica)

    def metrics(self, key: str, *, buckets: int = 1000) -> Series:
        """One metric so far. ``.to_numpy()`` and ``.to_pandas()`` give it in those forms; empty where there is none."""
        return self._portal.metrics(self.id, key, buckets=buckets).get(key, Series([], [], [], [], []))

    def points(self, key: str | None = None, *, follow: bool = False, after: int = 0) -> Iterator[Point]:
        """Every value as it was reported; with ``follow`` until the job has ended."""
        read = self._portal.follow_points if follow else self._portal.points
        return read(self.id, after, keys=key)

    def on(self, key: str, deed: Callable[[Point], object]) -> Watch[Point]:
        """Call ``deed`` with each value of a metric, those of the past first, from a thread of its own.

        The Watch ends with the job or by ``stop()``; ``wait()`` raises what went wrong in ``deed`` or on the way.
        """
        from regatta.terminal.watch import Watch

        return Watch(lambda enough: self._portal.follow_points(self.id, keys=key, enough=enough), deed)

    def plot(self, *keys: str, live: bool = True) -> Any:
        """A Plotly figure of some metrics (cost), which goes on by itself in a notebook while the job runs.

        Raises NotInstalled without plotly. Without anywidget, which figures that change need, it is a still picture.
        """
        from regatta.terminal.plot import figure_of

        return figure_of(self, keys or ("cost",), live=live)

    def events(self) -> list[dict[str, Any]]:
        """The timeline, oldest first."""
        return self._portal.events(self.id)

    def artifacts(self) -> list[Artifact]:
        return self._portal.artifacts(self.id)

    def download(self, name: str, target: Path | str) -> Artifact:
        """Fetch an artifact: whole and with the right hash, or not at all."""
        return self._portal.download(self.id, name, Path(target))
