"""Images of servers made from the Debian packages of this machine, for a cluster that reaches no public registry.

Each behaves as the official image as far as the manifests use it: same user, same environment, same program names.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.installation import image_store

_BASE = "base/python:3.11"
# PostgreSQL's compiler of expressions, which works without. Its library has 120 MB.
_COMPILER = "llvmjit.so"
_LIBRARY = re.compile(r"(?:=> )?(?P<path>/\S+) \(0x")

_POSTGRESQL = """\
#!/bin/sh
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf %s "$POSTGRES_PASSWORD" >/tmp/password
    initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" --pwfile=/tmp/password --encoding=UTF8 --locale=C --no-sync \\
        --auth-local=trust --auth-host=scram-sha-256
    rm /tmp/password
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    pg_ctl --pgdata="$PGDATA" --wait --options="-c listen_addresses=''" start
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --pgdata="$PGDATA" --wait --mode=fast stop
fi
exec postgres -D "$PGDATA" -c listen_addresses='*' "$@"
"""


@dataclass(frozen=True)
class StandIn:
    """What an image consists of: programs with their libraries, whole directories, and texts by path."""

    programs: tuple[str, ...]
    directories: tuple[str, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    config: tuple[str, ...] = ()


def _users(name: str, uid: int) -> dict[str, str]:
    return {
        "/etc/passwd": f"root:x:0:0::/root:/bin/sh\n{name}:x:{uid}:{uid}::/tmp:/bin/sh\n",
        "/etc/group": f"root:x:0:\n{name}:x:{uid}:\n",
    }


def _postgresql() -> StandIn:
    (home,) = sorted(Path("/usr/lib/postgresql").glob("*"))[-1:]
    tools = [str(home / "bin" / name) for name in ("postgres", "initdb", "psql", "pg_dump", "pg_restore", "pg_isready")]
    tools += [str(home / "bin" / name) for name in ("pg_ctl", "createdb", "pg_basebackup")]
    path = f"PATH={home}/bin:/usr/local/bin:/usr/bin:/bin"
    return StandIn(
        programs=tuple(tools),
        directories=(str(home / "lib"), f"/usr/share/postgresql/{home.name}", "/usr/share/zoneinfo"),
        texts={"/usr/local/bin/docker-entrypoint.sh": _POSTGRESQL, **_users("postgres", 999)},
        config=("--env", path, "--entrypoint", '["docker-entrypoint.sh"]', "--cmd", "", "--stop-signal", "SIGINT"),
    )


def all_of_them() -> dict[str, StandIn]:
    """Return the images by repository."""
    return {
        "postgres": _postgresql(),
        "redis": StandIn(("/usr/bin/redis-server", "/usr/bin/redis-cli"), texts=_users("redis", 999)),
        "etcd": StandIn(("/usr/bin/etcd", "/usr/bin/etcdctl")),
        "nginx": StandIn(("/usr/sbin/nginx",), texts=_users("nginx", 101)),
        "prometheus": StandIn(("/usr/bin/prometheus",)),
    }


def push_all(registry: str) -> dict[str, str]:
    """Push the images that the registry lacks. Return their references by repository."""
    return {name: _pushed(registry, name, image) for name, image in all_of_them().items()}


def _pushed(registry: str, name: str, image: StandIn) -> str:
    with tempfile.TemporaryDirectory() as folder:
        digest = hashlib.sha256(repr(image).encode())
        for path in _files(image):
            digest.update(f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
        reference = f"{registry}/stand-ins/{name}:{digest.hexdigest()[:16]}"
        if not _is_there(reference):
            root = _tree(image, Path(folder))
            with image_store.container(f"{registry}/{_BASE}", "--tls-verify=false") as container:
                image_store.do("add", "--quiet", container, str(root), "/")
                image_store.do("config", *image.config, container)
                image_store.do("commit", "--quiet", container, reference)
            image_store.do("push", "--quiet", "--tls-verify=false", reference)
    return reference


def _is_there(reference: str) -> bool:
    host, _, rest = reference.partition("/")
    repository, _, tag = rest.rpartition(":")
    accept = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
    return httpx.head(f"http://{host}/v2/{repository}/manifests/{tag}", headers=accept).status_code == 200


def _files(image: StandIn) -> Iterator[Path]:
    for program in image.programs:
        assert shutil.which(program), f"This machine has no {program}; `make test-kube` installs its Debian package."
        yield Path(program)
        yield from _libraries(Path(program))
    for directory in image.directories:
        for path in sorted(Path(directory).rglob("*.so")):
            if path.name != _COMPILER:
                yield from _libraries(path)


def _libraries(program: Path) -> list[Path]:
    """Return the libraries that the dynamic linker loads for a program or library."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    return [Path(found["path"]) for found in _LIBRARY.finditer(done.stdout)]


def _tree(image: StandIn, root: Path) -> Path:
    for path in {*_files(image)}:
        # /lib is a link to /usr/lib, in the image as well.
        target = root / os.path.realpath(path.parent).lstrip("/") / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    for directory in image.directories:
        target = root / directory.lstrip("/")
        shutil.copytree(directory, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(_COMPILER, "bitcode"))
    for name, text in image.texts.items():
        target = root / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755)
    return root
