"""Prints fresh secrets of an installation: ``python3 make_secrets.py`` as a Secret for ``kubectl apply -f -``, with
``--env`` as an environment file. Each time others: keep what you have applied.
"""

from __future__ import annotations

import argparse
import json
import secrets

NAMESPACE = "regatta-system"
_OF_SERVERS = ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "ETCD_PASSWORD", "COORDINATION_GATEWAY_KEY")
_ETCD = ",".join(f"etcd-{index}.etcd.{NAMESPACE}:2379" for index in range(3))


def drawn() -> dict[str, str]:
    names = ("REGATTA_SECRET_KEY", "REGATTA_ADMIN_PASSWORD", *_OF_SERVERS)
    # Letters and digits, - and _: nothing of it has to be escaped in an address.
    return {name: secrets.token_urlsafe(32) for name in names}


def manifest(found: dict[str, str]) -> dict[str, object]:
    """As a Secret, with the addresses of the servers beside it."""
    addresses = {
        "REGATTA_DATABASE_URL": f"postgresql://regatta:{found['POSTGRES_PASSWORD']}@postgresql.{NAMESPACE}:5432/regatta",
        "REGATTA_BROKER_URL": f"redis://:{found['REDIS_PASSWORD']}@redis.{NAMESPACE}:6379/0",
        "REGATTA_REDIS_URL": f"redis://:{found['REDIS_PASSWORD']}@redis.{NAMESPACE}:6379/1",
        "REGATTA_COORDINATION": f"etcd://root:{found['ETCD_PASSWORD']}@{_ETCD}",
    }
    servers = {name: found.pop(name) for name in _OF_SERVERS}
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [_secret("portal", {**found, **addresses}), _secret("servers", servers)],
    }


def _secret(name: str, content: dict[str, str]) -> dict[str, object]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "stringData": content}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", action="store_true", help="as an environment file")
    found = drawn()
    if parser.parse_args().env:
        print("\n".join(f"{name}={value}" for name, value in found.items()))  # noqa: T201
    else:
        print(json.dumps(manifest(found), indent=2))  # noqa: T201


if __name__ == "__main__":
    main()
