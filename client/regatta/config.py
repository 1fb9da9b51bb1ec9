"""Configuration: the portal, the account and the namespace.

In order of precedence: an option of the command, the environment (``REGATTA_CONTEXT``, ``REGATTA_SERVER``,
``REGATTA_TOKEN``, ``REGATTA_NAMESPACE``), ``.regatta.yaml`` of the project (in the working directory or above it), and
the user's own ``~/.config/regatta/config.yaml``::

    current: home
    contexts:
      home: {server: "http://127.0.0.1:8000", token: rgt_..., namespace: ada}

A project's file comes with code of others, so it can set a context or a namespace, but never a server: a checkout
cannot send the user's token elsewhere.
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
    """Portal and account. An empty namespace means the account's own."""

    server: str = DEFAULT_SERVER
    token: str = field(default="", repr=False)
    namespace: str = ""


@dataclass(frozen=True)
class Settings:
    """The user's file: contexts by name, and the current one."""

    current: str = DEFAULT_CONTEXT
    contexts: Mapping[str, Context] = field(default_factory=dict)

    def named(self, name: str) -> Context:
        """Return the context of that name. Raises NoSuchContext."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none yet"
            raise NoSuchContext(
                f"There is no context {name!r}. Known contexts: {known}. Run `regatta login` to create one."
            )
        return self.contexts[name]

    def with_context(self, name: str, context: Context) -> Settings:
        return replace(self, contexts={**self.contexts, name: context})

    def without(self, name: str) -> Settings:
        """Return the settings without the context. Raises NoSuchContext."""
        self.named(name)
        return replace(self, contexts={other: kept for other, kept in self.contexts.items() if other != name})


# --- Effective configuration -----------------------------------------------------------------------------------------
def name_in_use(asked: str = "", environ: Mapping[str, str] = os.environ, directory: Path | None = None) -> str:
    """Return the name of the current context. ``asked`` is the option's value; ``directory`` the working directory."""
    return asked or environ.get(CONTEXT, "") or project(directory)["context"] or load(environ).current


def in_use(asked: str = "", environ: Mapping[str, str] = os.environ, directory: Path | None = None) -> Context:
    """Return the effective context. A token of the file is only used with the file's server.

    Raises BadFile for an invalid file, NoSuchContext for a named context that does not exist.
    """
    settings, name = load(environ), name_in_use(asked, environ, directory)
    is_named = bool(asked or environ.get(CONTEXT) or project(directory)["context"])
    kept = settings.named(name) if is_named else settings.contexts.get(name, Context())
    server = environ.get(SERVER) or kept.server
    token = environ.get(TOKEN) or (kept.token if _same(server, kept.server) else "")
    return Context(server, token, environ.get(NAMESPACE) or project(directory)["namespace"] or kept.namespace)


def project(directory: Path | None = None) -> Mapping[str, str]:
    """Return ``context`` and ``namespace`` of the project's file, empty where not set. Raises BadFile."""
    start = directory or Path.cwd()
    file = next((found for each in (start, *start.parents) if (found := each / PROJECT_FILE).is_file()), None)
    body = _mapping(file) if file else {}
    if odd := sorted(set(body) - set(_OF_A_PROJECT)):
        raise BadFile(f"{file} has {odd[0]!r}; a project file may only contain {' and '.join(_OF_A_PROJECT)}.")
    return {key: str(body.get(key) or "") for key in _OF_A_PROJECT}


# --- The user's file -------------------------------------------------------------------------------------------------
def path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file according to the XDG base directory specification."""
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "regatta" / "config.yaml"


def load(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the stored settings; empty ones if there is no file. Raises BadFile for an invalid file."""
    file = path(environ)
    body = _mapping(file)
    contexts = body.get("contexts") or {}
    if not isinstance(contexts, dict) or not all(isinstance(kept, dict) for kept in contexts.values()):
        raise BadFile(f"{file} has no mapping of contexts. Sign in again with `regatta login`, or remove the file.")
    return Settings(
        str(body.get("current") or DEFAULT_CONTEXT), {str(name): _context(kept) for name, kept in contexts.items()}
    )


def save(settings: Settings, environ: Mapping[str, str] = os.environ) -> Path:
    """Write the settings, readable by their owner alone. Raises BadFile if the file cannot be written."""
    file = path(environ)
    contexts = {name: _kept(context) for name, context in settings.contexts.items()}
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent)  # created with mode 0600
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
    fields = {"server": context.server, "token": context.token, "namespace": context.namespace}
    return {key: value for key, value in fields.items() if value}


def _mapping(file: Path) -> Mapping[str, Any]:
    """Return the mapping in a YAML file, empty if there is no file."""
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
