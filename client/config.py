"""Which portal, and as whom: the environment first, then ``~/.config/regatta/config.json``."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from client.errors import BadFile

DEFAULT_SERVER = "http://127.0.0.1:8000"
SERVER = "REGATTA_SERVER"
TOKEN = "REGATTA_TOKEN"  # noqa: S105  the variable's name


@dataclass(frozen=True)
class Config:
    server: str = DEFAULT_SERVER
    token: str = ""


def path(environ: Mapping[str, str] = os.environ) -> Path:
    """The file, where the XDG base directory specification puts it."""
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "regatta" / "config.json"


def load(environ: Mapping[str, str] = os.environ) -> Config:
    """What applies now. A token of the file goes to the file's server only. Raises BadFile for a spoilt file."""
    kept = _read(path(environ))
    server = environ.get(SERVER) or kept.server
    return Config(server, environ.get(TOKEN) or (kept.token if _same(server, kept.server) else ""))


def save(config: Config, environ: Mapping[str, str] = os.environ) -> Path:
    """Keep it, readable by its owner alone."""
    file = path(environ)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent)  # made with 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(asdict(config), stream, indent=2)
        Path(temporary).replace(file)
    except OSError as error:
        raise BadFile(f"{file} cannot be written: {error.strerror}.") from error
    return file


def _read(file: Path) -> Config:
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        return Config(str(body.get("server") or DEFAULT_SERVER), str(body.get("token") or ""))
    except FileNotFoundError:
        return Config()
    except (OSError, ValueError, AttributeError) as error:
        raise BadFile(f"{file} cannot be read: {error}. Sign in again with `regatta login`, or remove it.") from None


def forget(environ: Mapping[str, str] = os.environ) -> None:
    """Remove the file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        path(environ).unlink()


def _same(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")
