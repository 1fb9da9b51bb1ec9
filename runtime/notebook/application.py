"""Jupyter Server and JupyterLab, configured for a replica."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jupyter_server.serverapp import ServerApp
from jupyterlab.labapp import LabApp
from traitlets.config import Config

from runtime.notebook.connection import RecordedConnection
from runtime.notebook.contents import RecordedContents
from runtime.notebook.handlers import ActivityHandler, OutputsHandler
from runtime.notebook.identity import PortalIdentity
from runtime.notebook.kernels import NotebookKernel, NotebookKernels, NotebookKernelSpecs
from runtime.notebook.output_log import OutputLog
from runtime.notebook.recorder import KernelRecorder
from runtime.notebook.settings import Settings

_LABEXTENSIONS = Path(__file__).with_name("labextensions")
# Plugins of JupyterLab that ask other hosts: news, and packages from PyPI.
_DISABLED = ("@jupyterlab/apputils-extension:announcements", "@jupyterlab/extensionmanager-extension")


def without_disabled(handler: object, page_config: dict[str, Any]) -> dict[str, Any]:
    """Add the disabled plugins to the configuration of a page, last: JupyterLab replaces the list by its files'."""
    listed = page_config.get("disabledExtensions") or []
    return {**page_config, "disabledExtensions": [*dict.fromkeys((*listed, *_DISABLED))]}


class NotebookServer(ServerApp):
    """The server of one notebook. Its own parts replace Jupyter's whatever files in the home directory say."""

    kernel_manager: NotebookKernels
    contents_manager: RecordedContents
    # Pages that read outputs from the log, by the session of their kernel connection.
    followed: set[str]

    def init_webapp(self) -> None:
        """Create the web application with our routes."""
        super().init_webapp()
        self.followed = set()
        self.web_app.settings["page_config_hook"] = without_disabled
        self.kernel_manager.new_recorder = self._new_recorder
        RecordedConnection.find_log = self._find_log
        routes = [("activity", ActivityHandler, {}), ("outputs", OutputsHandler, {"followed": self.followed})]
        base = f"{self.base_url}regatta/"
        self.web_app.add_handlers(".*$", [(base + name, handler, given) for name, handler, given in routes])

    async def cleanup_kernels(self) -> None:
        """End all kernels, and save what their cells had written."""
        await super().cleanup_kernels()
        await self.contents_manager.flush()

    def _new_recorder(self) -> KernelRecorder:
        return KernelRecorder(self.followed, self.contents_manager.save_soon)

    def _find_log(self, kernel: str, cell: str) -> OutputLog | None:
        """Return the log of the notebook that uses a kernel; of several, the one that contains the cell."""
        query = "SELECT path FROM session WHERE kernel_id=? AND type='notebook'"
        paths = [row["path"] for row in self.session_manager.cursor.execute(query, (kernel,)).fetchall()]
        if len(paths) > 1:
            paths = [path for path in paths if self._contains(path, cell)]
        return self.contents_manager.logs.get(paths[0]) if paths else None

    def _contains(self, path: str, cell: str) -> bool:
        file = Path(self.contents_manager._get_os_path(path))
        return file.is_file() and cell.encode() in file.read_bytes()


def configuration(settings: Settings) -> Config:
    """Return Jupyter's configuration."""
    config = Config()
    server = config.NotebookServer
    server.sock, server.sock_mode = str(settings.socket), "0600"
    server.base_url = settings.base_url
    server.root_dir = str(settings.home)
    server.open_browser = False
    server.allow_root = True
    server.allow_remote_access = True
    server.disable_check_xsrf = True
    server.allow_external_kernels = False
    config.PortalIdentity.token = ""
    server.identity_provider_class = PortalIdentity
    server.kernel_manager_class = NotebookKernels
    server.kernel_spec_manager_class = NotebookKernelSpecs
    server.kernel_websocket_connection_class = RecordedConnection
    server.contents_manager_class = RecordedContents
    server.jpserver_extensions = {"jupyterlab": True, "jupyter_server_terminals": True}
    # Otherwise it runs npm to look for language servers.
    config.LanguageServerManager.autodetect = False
    # The portal ends what is idle, and asks no question.
    server.answer_yes = True
    config.NotebookKernels.kernel_manager_class = f"{NotebookKernel.__module__}.{NotebookKernel.__name__}"
    # The record keeps what clients miss; a buffer per client would grow without limit.
    config.NotebookKernels.buffer_offline_messages = False
    config.NotebookKernel.transport = "ipc"
    # The recorder limits outputs.
    config.RecordedConnection.limit_rate = False
    lab = config.LabApp
    # Nothing that asks another host.
    lab.news_url = None
    lab.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
    lab.extension_manager = "readonly"
    lab.extra_labextensions_path = [str(_LABEXTENSIONS)]
    return config


def prepare(settings: Settings) -> None:
    """Set what Jupyter reads from the environment, and remove the socket of an earlier process."""
    runtime = settings.temporary / "k"
    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    shared = os.pathsep.join(map(str, shared_files(sys.path)))
    os.environ.update(JUPYTER_RUNTIME_DIR=str(runtime), JUPYTER_PLATFORM_DIRS="1", JUPYTER_PATH=shared)
    settings.socket.unlink(missing_ok=True)
    settings.home.mkdir(parents=True, exist_ok=True)
    os.chdir(settings.home)


def shared_files(import_path: Iterable[str]) -> list[Path]:
    """Return the directories with extensions of JupyterLab that belong to the packages of an import path.

    An environment may use packages of another one; Jupyter looks for extensions in its own.
    """
    sites = [Path(entry) for entry in import_path if Path(entry).name == "site-packages"]
    found = [site.parents[2] / "share" / "jupyter" for site in sites if len(site.parents) > 2]
    return [place for place in dict.fromkeys(found) if place.is_dir()]


def run(settings: Settings) -> None:
    """Serve until the process is asked to end."""
    prepare(settings)
    server: Any = NotebookServer.instance(config=configuration(settings))
    server.initialize(argv=[], starter_extension=LabApp.name)
    server.start()
