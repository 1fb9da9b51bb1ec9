"""``python -m runtime.notebook_start``: prepare the home of a notebook, then run ``runtime.notebook`` in this process.

A second process notifies the agent once Jupyter listens, and then clones the Git address of the notebook, if it has
one. It runs in the notebook's own interpreter: standard library only.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from urllib.parse import urlsplit

from runtime import contract
from runtime.launch import notify_agent, with_own_programs

SERVER = "runtime.notebook"
POLL_SECONDS = 0.05
# A shell script in the temporary directory, so that terminals and cells find the command.
_COMMAND = '#!/bin/sh\nexec "{python}" -m regatta "$@"\n'


def prepared(environ: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """Lay out the home, and return the environment of Jupyter: it finds the client, and no link to the agent."""
    home, work = Path(environ[contract.NOTEBOOK_HOME]), Path(environ[contract.WORK_DIR])
    lay_out(work / contract.NOTEBOOK_START, home / environ.get(contract.NOTEBOOK_FOLDER, ""))
    programs = temporary / "bin"
    programs.mkdir(exist_ok=True)
    command = programs / "regatta"
    command.write_text(_COMMAND.format(python=sys.executable), encoding="utf-8")
    command.chmod(0o755)
    environment = with_own_programs(environ)
    environment["PATH"] = os.pathsep.join([str(programs), environment["PATH"]])
    packages = work / contract.NOTEBOOK_PACKAGES
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environ.get("PYTHONPATH", ""), str(packages)]))
    environment["JUPYTER_PATH"] = os.pathsep.join(_shared())
    environment.pop(contract.AGENT_FD, None)
    return environment


def _shared() -> Iterator[str]:
    """Yield where installed packages have put extensions of JupyterLab: those of the platform's environment too."""
    for path in map(Path, sys.path):
        if path.name == "site-packages" and (shared := path.parents[2] / "share" / "jupyter").is_dir():
            yield str(shared)


def lay_out(source: Path, target: Path) -> None:
    """Copy the files to the home. Those that are there already stay: they may have been changed since."""
    if not source.is_dir():
        return
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            shutil.copyfile(file, place)


def clone(address: str, target: Path) -> int:
    """Clone a repository that anybody can read over HTTPS, unless the directory exists. Return git's exit code."""
    if target.exists():
        return 0
    parts = urlsplit(address)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.password:
        return _refuse(f"{address} is not cloned: only addresses that begin with https:// are.")
    target.parent.mkdir(parents=True, exist_ok=True)
    allowed = ("-c", "protocol.allow=never", "-c", "protocol.https.allow=always", "-c", "credential.helper=")
    command = ("git", *allowed, "clone", "--", address, str(target))
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        return _refuse(f"{address} could not be cloned: git cannot be started ({error.strerror}).")


def listens(path: Path) -> bool:
    """Return whether a program accepts connections at the socket."""
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(str(path))
        except OSError:
            return False
    return True


def attend(environ: MutableMapping[str, str], temporary: Path, ended: Callable[[], bool]) -> int:
    """Notify the agent once Jupyter listens, then clone. Return the exit code; ``ended``: Jupyter has ended."""
    while not listens(temporary / contract.NOTEBOOK_SOCKET):
        if ended():
            return contract.EXIT_ERROR
        time.sleep(POLL_SECONDS)
    if link := environ.pop(contract.AGENT_FD, ""):
        notify_agent(int(link))
    address = environ.get(contract.NOTEBOOK_GIT, "")
    home = Path(environ[contract.NOTEBOOK_HOME])
    return clone(address, home / environ.get(contract.NOTEBOOK_FOLDER, "")) if address else 0


def main() -> int:
    """Run Jupyter in this process. Returns only in the second process, and on failure."""
    temporary = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108  the replica's own
    try:
        environment = prepared(os.environ, temporary)
    except OSError as error:
        return _refuse(f"The home of the notebook cannot be prepared: {error}.")
    jupyter = os.getpid()
    if os.fork() == 0:
        return attend(os.environ, temporary, lambda: os.getppid() != jupyter)
    try:
        os.execve(sys.executable, [sys.executable, "-m", SERVER], environment)  # noqa: S606  no shell is needed
    except OSError as error:
        return _refuse(f"Jupyter cannot be started: {error.strerror}.")


def _refuse(message: str) -> int:
    sys.stderr.write(message + "\n")
    return contract.EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main())
