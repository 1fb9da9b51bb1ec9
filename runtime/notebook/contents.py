"""Notebook files: read with the recorded outputs, and saved by the server when cells have ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from anyio.to_thread import run_sync
from jupyter_server.services.contents.filemanager import AsyncFileContentsManager
from tornado.web import HTTPError

from runtime.notebook import merge
from runtime.notebook.cell_outputs import Output
from runtime.notebook.cell_record import CellRecord
from runtime.notebook.output_log import OutputLog, OutputLogs

_KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
# Seconds from the end of a cell to the save: "run all" ends many cells at once.
_PAUSE = 0.3


class RecordedContents(AsyncFileContentsManager):
    """Files of the home directory. A notebook contains the outputs of what ran while no page was open."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.logs = OutputLogs(Path(self.root_dir))
        self.last_saved = datetime.now(UTC)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._saving: dict[str, asyncio.Task[None]] = {}

    def save_soon(self, log: OutputLog) -> None:
        """Save the recorded outputs of a notebook into its file, unless that will happen anyway."""
        if log.path not in self._saving:
            self._saving[log.path] = asyncio.get_running_loop().create_task(self._save_recorded(log.path))

    async def flush(self) -> None:
        """Wait until everything that has ended is saved."""
        await asyncio.gather(*self._saving.values())

    async def save(self, model: dict[str, Any], path: str = "") -> dict[str, Any]:
        """Save what a client sends. Recorded outputs that the client has not seen stay in the file."""
        path = path.strip("/")
        self.last_saved = datetime.now(UTC)
        if model.get("type") != "notebook" or not isinstance(model.get("content"), dict):
            return dict(await super().save(model, path))
        async with self._locks[path]:
            log, notebook = self.logs.get(path), model["content"]
            cursor = merge.take_cursor(notebook, log.identity)
            for cell in merge.cleared(notebook, log.records.values(), cursor):
                log.forget(cell)
            merge.add_missing(notebook, log.records.values())
            merge.merge(notebook, log.records.values(), _stored)
            cells = {str(cell.get("id")) for cell in notebook["cells"]}
            saved = dict(await super().save(model, path))
            log.saved(cells)
            return saved

    async def rename_file(self, old_path: str, new_path: str) -> None:
        """Rename a file; its record follows."""
        await super().rename_file(old_path, new_path)
        self.logs.move(old_path, new_path)

    async def delete_file(self, path: str) -> None:
        """Delete a file and its record."""
        await super().delete_file(path)
        self.logs.remove(path)

    async def _notebook_model(self, path: str, content: bool = True, require_hash: bool = False) -> dict[str, Any]:
        model: dict[str, Any] = await super()._notebook_model(path, content=content or require_hash)
        if require_hash:
            model.update(hash=merge.digest(model["content"]), hash_algorithm="sha256")
        if content:
            log = self.logs.get(path)
            log.saved({str(cell.get("id")) for cell in model["content"]["cells"]})
            # A cell that the file has had and lacks now was removed there.
            missing = [record for record in log.records.values() if not record.in_file]
            merge.add_missing(_plain(model["content"]), missing)
            merge.merge(_plain(model["content"]), log.records.values(), _shown)
            merge.put_cursor(model["content"], log.identity, log.cursor, log.records.values())
        else:
            model.update(content=None, format=None)
        return model

    async def _read_notebook(self, os_path: str, *args: Any, **settings: Any) -> Any:
        read = await super()._read_notebook(os_path, *args, **settings)
        notebook = read[0] if isinstance(read, tuple) else read
        # Without one, JupyterLab asks which kernel to use.
        notebook["metadata"].setdefault("kernelspec", nbformat.from_dict(_KERNEL))
        _add_ids(notebook)
        return read

    async def _save_notebook(self, os_path: str, nb: Any, capture_validation_error: Any = None) -> None:
        text = nbformat.writes(nb, version=nbformat.NO_CONVERT, capture_validation_error=capture_validation_error)
        with self.perm_to_403(os_path):
            await run_sync(_replace, Path(os_path).resolve(), text + "\n")

    async def _save_recorded(self, path: str) -> None:
        try:
            await asyncio.sleep(_PAUSE)
        finally:
            # A cell that ends from here on starts another save.
            self._saving.pop(path, None)
        # Deleted or made unreadable since: the record remains.
        with contextlib.suppress(OSError, HTTPError):
            async with self._locks[path]:
                await self._write_recorded(path)

    async def _write_recorded(self, path: str) -> None:
        os_path = Path(self._get_os_path(path))
        before = os_path.stat()
        notebook = await self._read_notebook(str(os_path), as_version=4)
        self.mark_trusted_cells(notebook, path)
        # Cells that the file lacks remain in the record: a page that has them would take them for a change on disk.
        merge.merge(notebook, self.logs.get(path).records.values(), _stored)
        # The notebook's nodes, so that signing can read them by attribute.
        notebook = nbformat.from_dict(notebook)
        self.check_and_sign(notebook, path)
        await self._save_notebook(str(os_path), notebook)
        # A page compares the time with the one that it knows, and would ask the person about a change on disk.
        os.utime(os_path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _stored(record: CellRecord) -> list[Output]:
    return record.stored.outputs()


def _shown(record: CellRecord) -> list[Output]:
    return record.shown.outputs()


def _plain(notebook: Any) -> merge.Notebook:
    return notebook  # type: ignore[no-any-return]


def _add_ids(notebook: Any) -> None:
    """Give cells of an old notebook identifiers that are the same at each reading, until it is saved."""
    if notebook["nbformat"] == 4 and notebook["nbformat_minor"] < 5:
        notebook["nbformat_minor"] = 5
        for index, cell in enumerate(notebook["cells"]):
            cell.setdefault("id", f"cell-{index}")


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[tuple[int, Path]]:
    descriptor, name = tempfile.mkstemp(prefix=".~", dir=path.parent)
    try:
        yield descriptor, Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader, or the next start after a crash, sees all of it or what was there before."""
    with _beside(path) as (descriptor, fresh):
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
