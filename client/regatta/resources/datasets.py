"""Datasets of the portal."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from regatta.dataset_versions import Versions, path_of, split
from regatta.errors import Missing
from regatta.http import Http
from regatta.models import Dataset, Use, Version
from regatta.transfer import SILENT, Fetcher, Progress, Sender


class Datasets:
    """Datasets that the account may see. A full name is ``namespace/name``. ``sleep`` waits between two polls."""

    def __init__(self, http: Http, sleep: Callable[[float], None]) -> None:
        self._http = http
        self._sleep = sleep
        self.versions = Versions(http)

    def list(self, namespace: str = "", query: str | None = None) -> Iterator[Dataset]:
        """Yield the datasets of a namespace; without one, of all that the account sees: its own, shared, public."""
        path = f"/api/v1/namespaces/{quote(namespace)}/datasets" if namespace else "/api/v1/datasets"
        yield from map(Dataset.from_json, self._http.pages(path, q=query))

    def get(self, full_name: str) -> Dataset:
        """Return a dataset. Raises Missing."""
        return Dataset.from_json(self._http.get(path_of(full_name)))

    def create(self, full_name: str, *, description: str = "") -> Dataset:
        namespace, name = split(full_name)
        body = {"name": name, "description": description}
        return Dataset.from_json(self._http.post(f"/api/v1/namespaces/{quote(namespace)}/datasets", body))

    def get_or_create(self, full_name: str) -> Dataset:
        """Return a dataset. Creates it if it does not exist."""
        try:
            return self.get(full_name)
        except Missing:
            return self.create(full_name)

    def change(self, full_name: str, **changed: Any) -> Dataset:
        """Change ``description=`` and ``visibility=`` ("private" or "public")."""
        return Dataset.from_json(self._http.patch(path_of(full_name), changed))

    def share(self, full_name: str, namespaces: Sequence[str]) -> Dataset:
        """Share the dataset with exactly these namespaces."""
        return Dataset.from_json(self._http.put(f"{path_of(full_name)}/shares", {"namespaces": list(namespaces)}))

    def remove(self, full_name: str) -> None:
        """Delete the dataset. ``restore`` undoes this during a grace period."""
        self._http.delete(path_of(full_name))

    def restore(self, full_name: str) -> Dataset:
        return Dataset.from_json(self._http.post(f"{path_of(full_name)}/restore"))

    def preview(self, full_name: str, version: int, *, limit: int = 20) -> dict[str, Any]:
        """Return the first records as rows of cells. Raises Missing.

        The result is ``{"format", "file", "columns": [{"name", "type"}], "records", "pictures", "statistics":
        {"records", "size", "files", "chunks"}, "more_columns", "why"}``.
        """
        return dict(self._http.get(f"{path_of(full_name, version)}/preview", limit=limit))

    def uses(self, full_name: str) -> builtins.list[Use]:
        """Return the newest jobs that use the dataset and that the account may see. Raises Missing."""
        return [Use.from_json(use) for use in self._http.get(f"{path_of(full_name)}/uses")["uses"]]

    def upload(self, full_name: str, *sources: Path | str, fresh: bool = False, progress: Progress = SILENT) -> Version:
        """Upload files and folders as a new version of ``namespace/name`` and seal it; resumes an open version."""
        sender = Sender(self.versions, self.get_or_create, self._sleep, progress)
        return sender.upload(full_name, [Path(source) for source in sources], fresh=fresh)

    def download(
        self, full_name: str, target: Path | str, *, version: int | None = None, progress: Progress = SILENT
    ) -> builtins.list[Path]:
        """Download a version of a dataset (default: the newest) to a folder; resumes an interrupted download.

        Raises Missing if no version is sealed.
        """
        number = version or self.get(full_name).latest
        if number is None:
            raise Missing(f"{full_name} has no sealed version yet.")
        return Fetcher(self.versions, self._http, self._sleep, progress).download(full_name, Path(target), number)
