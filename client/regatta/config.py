"""Which portal, as whom, and in which namespace.

What is said nearer counts first: an option of the command, then the environment (``REGATTA_CONTEXT``,
``REGATTA_SERVER``, ``REGATTA_TOKEN``, ``REGATTA_NAMESPACE``), then ``.regatta.yaml`` of the project (in the working
directory or above it), then the user's own ``~/.config/regatta/config.yaml``::

    current: home
    contexts:
      home: {server: "http://127.0.0.1:8000", token: rgt_..., namespace: ada}

The file of a project comes with somebody's code, so it names a context or a namespace, and never a server: no checkout
sends anybody's token elsewhere.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from regatta.errors import BadFile, NoSuchContext

DEFAULT_SERVER = "http://127.0.0.1:8000"
DEFAULT_CONTEXT = "default"
CONTEXT = "REGATTA_CONTEXT"
SERVER = "REGATTA_SERVER"
TOKEN = "REGATTA_TOKEN"  # noqa: S105  the variable's name
NAMESPACE = "REGATTA_NAMESPACE"
PROJECT_FILE = ".regatta.yaml"
_OF_A_PROJECT = ("context", "namespace")


@dataclass(frozen=True)
class Context:
    """A portal and who one is there. An empty namespace means one's own."""

    server: str = DEFAULT_SERVER
    token: str = field(default="", repr=False)
    namespace: str = ""


@dataclass(frozen=True)
class Settings:
    """The user's file: contexts by name, and the one that is meant when none is named."""

    current: str = DEFAULT_CONTEXT
    contexts: Mapping[str, Context] = field(default_factory=dict)

    def named(self, name: str) -> Context:
        """Raises NoSuchContext."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none yet"
            raise NoSuchContext(
                f"There is no context {name!r}. Known contexts: {known}. Run `regatta login` to create one."
            )
        return self.contexts[name]

    def with_context(self, name: str, context: Context) -> Settings:
        return replace(self, contexts={**self.contexts, name: context})

    def without(self, name: str) -> Settings:
        """Raises NoSuchContext."""
        self.named(name)
        return replace(self, contexts={other: kept for other, kept in self.contexts.items() if other != name})


# --- What applies now ------------------------------------------------------------------------------------------------
def name_in_use(asked: str = "", environ: Mapping[str, str] = os.environ, directory: Path | None = None) -> str:
    """The context that is meant. ``asked`` is an option's; ``room`` the working directory."""
    return asked or environ.get(CONTEXT, "") or project(directory)["context"] or load(environ).current


def in_use(asked: str = "", environ: Mapping[str, str] = os.environ, directory: Path | None = None) -> Context:
    """What applies now. A token of the file goes to the file's server only.

    Raises BadFile for a spoilt file, NoSuchContext for one that was named and is not there.
    """
    settings, name = load(environ), name_in_use(asked, environ, directory)
    is_named = bool(asked or environ.get(CONTEXT) or project(directory)["context"])
    kept = settings.named(name) if is_named else settings.contexts.get(name, Context())
    server = environ.get(SERVER) or kept.server
    token = environ.get(TOKEN) or (kept.token if _same(server, kept.server) else "")
    return Context(server, token, environ.get(NAMESPACE) or project(directory)["namespace"] or kept.namespace)


def project(directory: Path | None = None) -> Mapping[str, str]:
    """``context`` and ``namespace`` of the project's file, empty where it says nothing. Raises BadFile."""
    start = directory or Path.cwd()
    file = next((found for each in (start, *start.parents) if (found := each / PROJECT_FILE).is_file()), None)
    body = _mapping(file) if file else {}
    if odd := sorted(set(body) - set(_OF_A_PROJECT)):
        raise BadFile(f"{file} has {odd[0]!r}; a project file may only contain {' and '.join(_OF_A_PROJECT)}.")
    return {key: str(body.get(key) or "") for key in _OF_A_PROJECT}


# --- The user's file -------------------------------------------------------------------------------------------------
def path(environ: Mapping[str, str] = os.environ) -> Path:
    """The file, where the XDG base directory specification puts it."""
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "regatta" / "config.yaml"


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """What is kept; nothing where there is no file. Raises BadFile for a spoilt one."""
    file = path(environ)
    body = _mapping(file)
    contexts = body.get("contexts") or {}
    if not isinstance(contexts, dict) or not all(isinstance(kept, dict) for kept in contexts.values()):
        raise BadFile(f"{file} has no mapping of contexts. Sign in again with `regatta login`, or remove the file.")
    return Settings(
        str(body.get("current") or DEFAULT_CONTEXT), {str(name): _context(kept) for name, kept in contexts.items()}
    )


def save(settings: Settings, environ: Mapping[str, str] = os.environ) -> Path:
    """Keep it, readable by its owner alone. Raises BadFile where it cannot be written."""
    file = path(environ)
    contexts = {name: _kept(context) for name, context in settings.contexts.items()}
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent)  # made with 0600
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            yaml.safe_dump({"current": settings.current, "contexts": contexts}, stream, sort_keys=False)
        Path(temporary).replace(file)
    except OSError as error:
        raise BadFile(f"{file} cannot be written: {error.strerror}.") from error
    return file


def _context(kept: Mapping[str, Any]) -> Context:
    words = {key: str(kept.get(key) or "") for key in ("server", "token", "namespace")}
    return Context(words["server"] or DEFAULT_SERVER, words["token"], words["namespace"])


def _kept(context: Context) -> dict[str, str]:
    said = {"server": context.server, "token": context.token, "namespace": context.namespace}
    return {key: value for key, value in said.items() if value}


def _mapping(file: Path) -> Mapping[str, Any]:
    """A YAML file's mapping, empty where there is no file."""
    try:
        body = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no YAML"
        raise BadFile(f"{file} cannot be read: {why}. Sign in again with `regatta login`, or remove it.") from None
    if body is not None and not isinstance(body, dict):
        raise BadFile(f"{file} is not a mapping. Sign in again with `regatta login`, or remove it.")
    return body or {}


def _same(one: str, other: str) -> bool:
    return one.rstrip("/") == other.rstrip("/")
