"""Artifacts of jobs."""

from __future__ import annotations

import builtins
import hashlib
import os
from pathlib import Path
from urllib.parse import quote

from regatta.errors import Missing, PortalError, Unreachable
from regatta.http import Http
from regatta.models import Artifact
from regatta.paths import segment

ROWS = 500  # items per page of a list


class Artifacts:
    """Files that jobs saved. A download is complete and has the right hash, or leaves nothing."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def list(self, job_id: str) -> builtins.list[Artifact]:
        """Return all artifacts, fetched page by page."""
        found: list[Artifact] = []
        cursor: str | None = None
        while True:
            body = self._http.get(f"/api/v1/jobs/{segment(job_id)}/artifacts", limit=ROWS, cursor=cursor)
            found += map(Artifact.from_json, body["artifacts"])
            # Older portals have no pages and return everything at once.
            cursor = body.get("next")
            if not cursor:
                return found

    def download(self, job_id: str, name: str, target: Path) -> Artifact:
        """Download an artifact to ``target``: completely and with the right hash, or not at all."""
        found = next((artifact for artifact in self.list(job_id) if artifact.name == name), None)
        if found is None:
            raise Missing(f"The job has no artifact {name!r}.")
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            digest = self._fetch(f"/api/v1/jobs/{segment(job_id)}/artifacts/{quote(name)}", part)
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
