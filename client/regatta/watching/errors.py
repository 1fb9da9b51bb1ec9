"""Error of a job that was waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regatta.errors import EXIT_OF_STATE, PortalError

if TYPE_CHECKING:
    from regatta.job import Job


class JobFailed(PortalError):
    """A job that was waited for and ended without success. ``job`` is in its final state."""

    def __init__(self, job: Job, traceback: str = "") -> None:
        reason = f"The job {job.name} ended as {job.state}. {job.why}".strip()
        super().__init__(f"{reason}\n{traceback}".strip())
        self.job = job
        self.exit_code = EXIT_OF_STATE[job.state]

    def _render_traceback_(self) -> list[str]:
        return [*self.detail.splitlines(), f"Log: job.logs(), or regatta logs {self.job.id}"]
