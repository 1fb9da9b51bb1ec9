"""Make the secrets of an installation, or rotate them. Needs Python only.

python3 make_secrets.py > secrets.json                 a List of two Secrets, for kubectl apply
python3 make_secrets.py --env > .env                   an environment file, for compose
python3 make_secrets.py --from values.json             with given values; the others are random
python3 make_secrets.py --rotate secrets.json --output new-secrets.json
                                                       write new Secrets and print the commands to run
python3 make_secrets.py --rotate .env --output new.env    the same for compose, in the directory of compose.yaml
python3 make_secrets.py --statement etcd secrets.json new-secrets.json
                                                       print the input of one of these commands

Each call makes other values. Store what you have applied.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

NAMESPACE = "regatta-system"
_ETCD = ",".join(f"etcd-{index}.etcd.{NAMESPACE}:2379" for index in range(3))
_ADMIN = "REGATTA_ADMIN_PASSWORD"
# Passwords of the servers, which the Secret `servers` holds, and the command that gives its input to a server: on
# Kubernetes, and with compose.
_SERVERS = {
    "POSTGRES_PASSWORD": (
        "postgresql",
        "postgresql-0 -- psql --quiet --set=ON_ERROR_STOP=1 --username=regatta regatta",
    ),
    "REDIS_PASSWORD": ("redis", "deployment/redis -- redis-cli -e"),
    "ETCD_PASSWORD": ("etcd", "deployment/portal-worker -c worker -- python3 manage.py change_etcd_password"),
}
_COMPOSE = {
    "POSTGRES_PASSWORD": "postgresql psql --quiet --set=ON_ERROR_STOP=1 --username=regatta regatta",
    "REDIS_PASSWORD": "redis redis-cli -e",
    "ETCD_PASSWORD": "portal python3 manage.py change_etcd_password",
}
# The key with which coordination gateways recognise their leases.
_GATEWAY_KEY = "COORDINATION_GATEWAY_KEY"
_IN_SERVERS = (*_SERVERS, _GATEWAY_KEY)
_NAMES = ("REGATTA_SECRET_KEY", _ADMIN, *_IN_SERVERS)
# Addresses in the Secret `portal`, with the password in each.
_ADDRESSES = {
    "REGATTA_DATABASE_URL": ("POSTGRES_PASSWORD", f"postgresql://regatta:{{}}@postgresql.{NAMESPACE}:5432/regatta"),
    "REGATTA_BROKER_URL": ("REDIS_PASSWORD", f"redis://:{{}}@redis.{NAMESPACE}:6379/0"),
    "REGATTA_REDIS_URL": ("REDIS_PASSWORD", f"redis://:{{}}@redis.{NAMESPACE}:6379/1"),
    "REGATTA_COORDINATION": ("ETCD_PASSWORD", f"etcd://root:{{}}@{_ETCD}"),
}
# The account and password of an address, up to the last @ before the path.
_PASSWORD = re.compile(r"(?P<before>[a-z]+://[^:@/]*:)(?P<password>[^@/]*)(?P<after>@.*)")
_LINE = re.compile(r"(?P<name>[A-Z_]+)=(?P<value>.*)")
_ROUNDS = 4096


class Unusable(Exception):
    """An argument or a file cannot be used. The message says what to do."""


# --- Values ----------------------------------------------------------------------------------------------------------
def random_values(names: Sequence[str] = _NAMES) -> dict[str, str]:
    # Letters, digits, - and _: nothing has to be encoded, wherever it is pasted.
    return {name: secrets.token_urlsafe(32) for name in names}


def given_values(text: str) -> dict[str, str]:
    """Return the values of a JSON object or of lines ``NAME=VALUE``. Raises Unusable, with no value in it."""
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else _lines(text)
    except ValueError:
        raise Unusable("The given values are no JSON object and no lines NAME=VALUE.") from None
    for name, value in found.items():
        if name not in _NAMES:
            raise Unusable(f"{name} is no secret of an installation. Choose from {', '.join(_NAMES)}.")
        if not isinstance(value, str) or not re.fullmatch(r"[!-~]{12,200}", value):
            raise Unusable(f"The value of {name} must have 12 to 200 printable ASCII characters and no space.")
    return dict(found)


def _lines(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    matches = [_LINE.fullmatch(line.strip()) for line in lines]
    if not all(matches):
        raise ValueError("a line without a name")
    return {match["name"]: match["value"] for match in matches if match}


# --- Secrets ---------------------------------------------------------------------------------------------------------
def manifest(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the two Secrets, with the addresses of the servers in the first."""
    addresses = {name: form.format(quote(values[secret], safe="")) for name, (secret, form) in _ADDRESSES.items()}
    portal = {name: values[name] for name in _NAMES if name not in _IN_SERVERS}
    servers = {name: values[name] for name in _IN_SERVERS}
    return _list(_secret("portal", {**portal, **addresses}), _secret("servers", servers))


def _list(*items: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def _secret(name: str, content: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": dict(content)}


def environment(text: str) -> dict[str, str]:
    """Return the variables of an environment file, as printed with --env. Raises Unusable, with no value in it."""
    try:
        found = _lines(text)
    except ValueError:
        raise Unusable("The environment file has a line that is not NAME=VALUE.") from None
    missing = [name for name in _SERVERS if name not in found]
    if missing:
        raise Unusable(f"The environment file has no {', '.join(missing)}.")
    return found


def is_environment(text: str) -> bool:
    return not text.lstrip().startswith("{")


def passwords(text: str) -> dict[str, str]:
    """Return the passwords of the servers, from either form. Raises Unusable."""
    return environment(text) if is_environment(text) else applied(text)["servers"]


def applied(text: str) -> dict[str, dict[str, str]]:
    """Return the contents of the Secrets `portal` and `servers` by name, as printed by this program or by
    ``kubectl get secret portal servers --output=json``. Raises Unusable."""
    try:
        items = json.loads(text)["items"]
        found = {item["metadata"]["name"]: _content(item) for item in items if item["kind"] == "Secret"}
        contents = {"portal": found["portal"], "servers": found["servers"]}
    except (ValueError, KeyError, TypeError):
        raise Unusable("The file is no List with the Secrets portal and servers.") from None
    missing = [name for name in _SERVERS if name not in contents["servers"]]
    if missing:
        raise Unusable(f"The Secret servers has no {', '.join(missing)}.")
    return contents


def _content(item: Mapping[str, Any]) -> dict[str, str]:
    encoded = {name: base64.b64decode(value).decode() for name, value in (item.get("data") or {}).items()}
    return {**encoded, **(item.get("stringData") or {})}


# --- Rotation --------------------------------------------------------------------------------------------------------
def rotated(old: Mapping[str, Mapping[str, str]], new: Mapping[str, str]) -> dict[str, Any]:
    """Return the Secrets with new values. Everything else in them stays, such as addresses of other servers."""
    portal, servers = dict(old["portal"]), dict(old["servers"])
    for name, value in new.items():
        (servers if name in _IN_SERVERS else portal)[name] = value
    for name, (secret, _) in _ADDRESSES.items():
        if secret in new and name in portal:
            portal[name] = _with_password(name, portal[name], old["servers"][secret], new[secret])
    return _list(_secret("portal", portal), _secret("servers", servers))


def _with_password(name: str, address: str, old: str, new: str) -> str:
    found = _PASSWORD.fullmatch(address)
    if found is None or unquote(found["password"]) != old:
        raise Unusable(
            f"{name} does not have the password of the Secret servers. Rotate the one of that server by hand."
        )
    return found["before"] + quote(new, safe="") + found["after"]


def chosen(only: str) -> list[str]:
    """Return the names to rotate, separated by commas; the passwords of the servers if empty. Raises Unusable."""
    names = [name.strip() for name in only.split(",") if name.strip()] or list(_SERVERS)
    for name in names:
        if name == _ADMIN:
            raise Unusable(f"{_ADMIN} is read only before the first start. Change the password on the admin pages.")
        if name not in _NAMES:
            raise Unusable(f"{name} is no secret of an installation. Choose from {', '.join(_NAMES)}.")
    return names


def commands(names: Sequence[str], old: str, new: str) -> list[str]:
    """Return the commands of a rotation, in order. None contains a secret: values go through standard input."""
    kubectl, files = f"kubectl -n {NAMESPACE}", f"{shlex.quote(old)} {shlex.quote(new)}"
    this = shlex.quote(sys.argv[0] or "make_secrets.py")
    changes = [
        f"python3 {this} --statement {server} {files} | {kubectl} exec -i {command}"
        for name, (server, command) in _SERVERS.items()
        if name in names
    ]
    portal = "deployment/portal-web deployment/portal-worker deployment/portal-sweep"
    if _GATEWAY_KEY in names:
        portal += " deployment/coordination-gateway"
    restarts = [f"{kubectl} rollout restart {portal}"]
    waits = [f"{kubectl} rollout status {name}" for name in portal.split()]
    return ["set -eo pipefail", *changes, f"kubectl apply -f {shlex.quote(new)}", *restarts, *waits]


def compose_commands(names: Sequence[str], old: str, new: str) -> list[str]:
    """Return the commands of a rotation with compose, in order. None contains a secret."""
    files, this = f"{shlex.quote(old)} {shlex.quote(new)}", shlex.quote(sys.argv[0] or "make_secrets.py")
    compose = "docker compose --file compose.yaml"
    changes = [
        f"python3 {this} --statement {server} {files} | {compose} exec -T {_COMPOSE[name]}"
        for name, (server, _) in _SERVERS.items()
        if name in names
    ]
    # The containers get their passwords from the file; those of PostgreSQL and etcd need no restart.
    return ["set -eo pipefail", *changes, f"mv {shlex.quote(new)} {shlex.quote(old)}", f"{compose} up --detach --wait"]


def with_values(text: str, new: Mapping[str, str]) -> str:
    """Return the environment file with new values. All other lines stay."""
    lines = [
        f"{name}={new[name]}" if (name := line.partition("=")[0].strip()) in new else line for line in text.splitlines()
    ]
    present = {line.partition("=")[0].strip() for line in lines}
    return "\n".join([*lines, *(f"{name}={value}" for name, value in new.items() if name not in present), ""])


# --- Statements: the input of the commands ---------------------------------------------------------------------------
def postgresql_statement(old: str, new: str) -> str:
    """Return the SQL. It has no password, so none gets into the server's log, but what PostgreSQL stores of one."""
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", new.encode(), salt, _ROUNDS)
    client_key, server_key = (hmac.digest(salted, key, "sha256") for key in (b"Client Key", b"Server Key"))
    keys = (base64.b64encode(part).decode() for part in (hashlib.sha256(client_key).digest(), server_key))
    verifier = f"SCRAM-SHA-256${_ROUNDS}:{base64.b64encode(salt).decode()}${':'.join(keys)}"
    return f"ALTER ROLE regatta PASSWORD '{verifier}';"


def redis_statement(old: str, new: str) -> str:
    """Return the commands. A Redis that restarts gets the new password from the Secret."""
    return f"AUTH {_quoted(old)}\nCONFIG SET requirepass {_quoted(new)}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def etcd_statement(old: str, new: str) -> str:
    return new


STATEMENTS: dict[str, tuple[str, Callable[[str, str], str]]] = {
    "postgresql": ("POSTGRES_PASSWORD", postgresql_statement),
    "redis": ("REDIS_PASSWORD", redis_statement),
    "etcd": ("ETCD_PASSWORD", etcd_statement),
}


# --- Command line ----------------------------------------------------------------------------------------------------
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", action="store_true", help="print an environment file")
    parser.add_argument(
        "--from", dest="given", metavar="FILE", help="values: a JSON object or lines NAME=VALUE; - reads standard input"
    )
    parser.add_argument("--rotate", metavar="FILE", help="the Secrets that are applied now, or compose's file")
    parser.add_argument(
        "--only", default="", metavar="NAMES", help="secrets to rotate (default: the servers' passwords)"
    )
    parser.add_argument("--output", metavar="FILE", help="new file for the rotated Secrets")
    parser.add_argument("--statement", nargs=3, metavar=("SERVER", "OLD", "NEW"), help="print the input of a command")
    options = parser.parse_args()
    try:
        print(_output(options))  # noqa: T201
    except Unusable as reason:
        parser.error(str(reason))
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}.")


def _output(options: argparse.Namespace) -> str:
    if options.statement:
        return _statement(*options.statement)
    given = given_values(_read(options.given)) if options.given else {}
    if options.rotate:
        return _rotate(options, given)
    values = {**random_values(), **given}
    if options.env:
        return "\n".join(f"{name}={value}" for name, value in values.items())
    return json.dumps(manifest(values), indent=2)


def _read(path: str) -> str:
    return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")


def _statement(server: str, old: str, new: str) -> str:
    if server not in STATEMENTS:
        raise Unusable(f"There is no server {server}. Choose from {', '.join(STATEMENTS)}.")
    name, statement = STATEMENTS[server]
    before, after = (passwords(_read(path))[name] for path in (old, new))
    return statement(before, after)


def _rotate(options: argparse.Namespace, given: Mapping[str, str]) -> str:
    if not options.output:
        raise Unusable("Name a new file with --output: commands read the secrets from there.")
    names = chosen(options.only or ",".join(given))
    unnamed = [name for name in given if name not in names]
    if unnamed:
        raise Unusable(f"A value is given for {', '.join(unnamed)}, which --only does not name.")
    new = {name: given.get(name) or value for name, value in random_values(names).items()}
    text = _read(options.rotate)
    if is_compose := is_environment(text):
        environment(text)
        content = with_values(text, new)
    else:
        content = json.dumps(rotated(applied(text), new), indent=2)
    descriptor = os.open(options.output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
    printed = compose_commands if is_compose else commands
    return "\n".join(printed(names, options.rotate, options.output))


if __name__ == "__main__":
    main()
