"""``deploy/make_secrets.py``: given values, and the rotation of the secrets of real servers by the printed commands."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis
from redis.exceptions import AuthenticationError

from runtime.coordination import etcd_accounts
from runtime.coordination.base import AccessDenied
from tests.ports import free_port
from tests.servers.etcd_server import EtcdServer
from tests.servers.postgres_server import PostgresServer
from tests.servers.redis_server import RedisServer

ROOT = Path(__file__).parents[3]
SCRIPT = "deploy/make_secrets.py"
SERVERS = ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "ETCD_PASSWORD")
# Every printable character that could end a quotation or an address.
AWKWARD = "a'b\"c\\d$e`f@g/h:i%j#k?l"
# Runs what the commands run in pods, on this machine, and notes every call.
_KUBECTL = """#!/bin/bash
echo "$*" >>"$CALLS"
[[ $3 == exec ]] || exit 0
while [[ $1 != -- ]]; do shift; done
shift
if [[ $1 == redis-cli ]]; then exec redis-cli -p "$REDIS_PORT" "${@:2}"; fi
exec "$@"
"""


def make_secrets(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, *arguments]
    return subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def refusal(*arguments: str, stdin: str = "") -> str:
    done = make_secrets(*arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def contents(text: str) -> dict[str, dict[str, str]]:
    return {item["metadata"]["name"]: item["stringData"] for item in json.loads(text)["items"]}


@pytest.fixture
def applied(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.json"
    path.write_text(make_secrets().stdout)
    return path


# --- Given values ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "form", [json.dumps, lambda given: "# mine\n" + "".join(f"{k}={v}\n" for k, v in given.items())]
)
def test_given_values_are_used_and_the_others_are_random(form: Any) -> None:
    done = make_secrets("--from", "-", stdin=form({"REDIS_PASSWORD": AWKWARD}))
    made = contents(done.stdout)
    assert made["servers"]["REDIS_PASSWORD"] == AWKWARD
    assert len(made["servers"]["ETCD_PASSWORD"]) > 40
    with Redis.from_url(made["portal"]["REGATTA_REDIS_URL"]) as client:
        assert client.connection_pool.connection_kwargs["password"] == AWKWARD


def test_an_environment_file_takes_given_values_too() -> None:
    done = make_secrets("--env", "--from", "-", stdin='{"ETCD_PASSWORD": "given-by-hand"}')
    assert "ETCD_PASSWORD=given-by-hand" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ('{"REDIS": "long-enough-1"}', "REDIS is no secret"),
        ('{"REDIS_PASSWORD": "too-short"}', "12 to 200 printable"),
        ('{"REDIS_PASSWORD": "has a blank in it"}', "12 to 200 printable"),
        ('{"REDIS_PASSWORD": 123456789012345}', "12 to 200 printable"),
        ("REDIS_PASSWORD long-enough-1", "no JSON object and no lines"),
    ],
)
def test_unusable_values_are_refused_and_not_printed(given: str, why: str) -> None:
    printed = refusal("--from", "-", stdin=given)
    assert why in printed
    assert "too-short" not in printed
    assert "blank" not in printed


# --- What is rotated -------------------------------------------------------------------------------------------------
def test_only_the_chosen_secret_changes_and_addresses_of_other_servers_stay(applied: Path, tmp_path: Path) -> None:
    old = contents(applied.read_text())
    other = old["portal"]["REGATTA_DATABASE_URL"].replace("postgresql.regatta-system", "db.example.org")
    text = applied.read_text().replace(old["portal"]["REGATTA_DATABASE_URL"], other)
    applied.write_text(text)
    output = tmp_path / "new.json"
    done = make_secrets("--rotate", str(applied), "--only", "POSTGRES_PASSWORD", "--output", str(output))
    assert done.returncode == 0, done.stderr
    new = contents(output.read_text())
    changed = {name for kind in old for name in old[kind] if old[kind][name] != new[kind][name]}
    assert changed == {"POSTGRES_PASSWORD", "REGATTA_DATABASE_URL"}
    assert "@db.example.org:5432/regatta" in new["portal"]["REGATTA_DATABASE_URL"]
    assert "redis-cli" not in done.stdout
    assert "change_etcd_password" not in done.stdout


def test_secrets_as_kubectl_prints_them_are_read(applied: Path, tmp_path: Path) -> None:
    body = json.loads(applied.read_text())
    for item in body["items"]:
        item["data"] = {k: base64.b64encode(v.encode()).decode() for k, v in item.pop("stringData").items()}
    applied.write_text(json.dumps(body))
    done = make_secrets("--rotate", str(applied), "--output", str(tmp_path / "new.json"))
    assert done.returncode == 0, done.stderr


def test_no_command_contains_a_secret_and_the_file_is_for_its_owner_alone(applied: Path, tmp_path: Path) -> None:
    output = tmp_path / "new.json"
    done = make_secrets(
        "--rotate", str(applied), "--only", "REGATTA_SECRET_KEY," + ",".join(SERVERS), "--output", str(output)
    )
    values = [v for path in (applied, output) for kind in contents(path.read_text()).values() for v in kind.values()]
    assert [value for value in values if value in done.stdout + done.stderr] == []
    assert output.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_rotated_is_refused_with_the_reason(applied: Path, tmp_path: Path) -> None:
    new = str(tmp_path / "new.json")
    rotate = ("--rotate", str(applied), "--output", new)
    assert "on the admin pages" in refusal(*rotate, "--only", "REGATTA_ADMIN_PASSWORD")
    assert "REDIS is no secret" in refusal(*rotate, "--only", "REDIS")
    assert "--output" in refusal("--rotate", str(applied))
    assert "does not name" in refusal(
        *rotate, "--only", "ETCD_PASSWORD", "--from", "-", stdin="REDIS_PASSWORD=long-enough-1"
    )
    assert "No such file" in refusal("--rotate", str(tmp_path / "none.json"), "--output", new)
    (tmp_path / "empty.json").write_text("{}")
    assert "no List with the Secrets" in refusal("--rotate", str(tmp_path / "empty.json"), "--output", new)
    assert not Path(new).exists()


def test_an_existing_file_is_not_overwritten(applied: Path) -> None:
    before = applied.read_text()
    assert "File exists" in refusal("--rotate", str(applied), "--output", str(applied))
    assert applied.read_text() == before


def test_an_address_with_another_password_than_the_servers_is_refused(applied: Path, tmp_path: Path) -> None:
    old = contents(applied.read_text())
    applied.write_text(applied.read_text().replace(f":{old['servers']['ETCD_PASSWORD']}@", ":another-one@"))
    printed = refusal("--rotate", str(applied), "--output", str(tmp_path / "new.json"))
    assert "REGATTA_COORDINATION does not have the password" in printed


# --- On real servers -------------------------------------------------------------------------------------------------
@pytest.fixture
def etcd_with_accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("rotated-etcd"))
    server.start()
    server.switch_authentication_on()
    yield server
    server.kill()


@pytest.fixture
def postgres_with_passwords() -> Iterator[PostgresServer]:
    server = PostgresServer(port=free_port())
    server.start()
    yield server
    server.stop()


@pytest.mark.redis
@pytest.mark.etcd
@pytest.mark.postgres
@pytest.mark.invariant("The printed commands rotate the passwords of PostgreSQL, Redis and etcd without a terminal.")
@pytest.mark.parametrize(
    "given", ["", f"POSTGRES_PASSWORD={AWKWARD}1\nREDIS_PASSWORD={AWKWARD}2\nETCD_PASSWORD={AWKWARD}3\n"]
)
def test_the_printed_commands_rotate_the_passwords_of_all_servers(
    given: str,
    tmp_path: Path,
    postgres_with_passwords: PostgresServer,
    fragile_redis: RedisServer,
    etcd_with_accounts: EtcdServer,
) -> None:
    postgres, redis, etcd = postgres_with_passwords, fragile_redis, etcd_with_accounts
    old_postgres = "old-of-postgresql"
    with psycopg.connect(
        host=str(postgres.socket_directory), port=postgres.port, user="postgres", dbname="regatta"
    ) as link:
        link.execute(f"CREATE ROLE regatta LOGIN PASSWORD '{old_postgres}'")
    values = {"POSTGRES_PASSWORD": old_postgres, "REDIS_PASSWORD": redis.password, "ETCD_PASSWORD": etcd.password}
    (tmp_path / "values.json").write_text(json.dumps(values | {"ETCD_PASSWORD": "s3cret/@-of-etcd"}))
    etcd_accounts.change_password(f"etcd://root:s3cret%2F%40@{etcd.server}", "s3cret/@-of-etcd")
    text = make_secrets("--from", str(tmp_path / "values.json")).stdout
    text = text.replace("postgresql.regatta-system:5432", f"127.0.0.1:{postgres.port}")
    text = text.replace("redis.regatta-system:6379", f"127.0.0.1:{redis.port}")
    text = text.replace(",".join(f"etcd-{index}.etcd.regatta-system:2379" for index in range(3)), etcd.server)
    applied, new = tmp_path / "secrets.json", tmp_path / "new secrets.json"
    applied.write_text(text)
    before = contents(text)["portal"]
    check(before)

    arguments = ("--from", "-") if given else ()
    rotation = make_secrets("--rotate", str(applied), "--output", str(new), *arguments, stdin=given)
    assert rotation.returncode == 0, rotation.stderr
    (tmp_path / "kubectl").write_text(_KUBECTL)
    (tmp_path / "kubectl").chmod(0o700)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))},
        **{name: value for name, value in before.items() if name != "REGATTA_ADMIN_PASSWORD"},
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "REDIS_PORT": str(redis.port),
        "PGHOST": str(postgres.socket_directory),
        "PGPORT": str(postgres.port),
        "REGATTA_DATA_DIR": str(tmp_path / "data"),
    }
    done = subprocess.run(
        ["bash"],
        input=rotation.stdout,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    after = contents(new.read_text())
    check(after["portal"])
    for refused in (check_postgres, check_redis, check_etcd):
        with pytest.raises((psycopg.OperationalError, AuthenticationError, AccessDenied)):
            refused(before)
    calls = (tmp_path / "calls").read_text()
    assert f"apply -f {new}" in calls
    assert "rollout restart deployment/portal-web" in calls
    assert [secret for secret in (*after["servers"].values(), *values.values()) if secret in calls] == []


# --- Compose ---------------------------------------------------------------------------------------------------------
# Runs what the commands run in containers, on this machine, and notes every call.
_DOCKER = """#!/bin/bash
echo "$*" >>"$CALLS"
[[ $4 == exec ]] || exit 0
shift 6
if [[ $1 == redis-cli ]]; then exec redis-cli -p "$REDIS_PORT" "${@:2}"; fi
exec "$@"
"""


@pytest.fixture
def compose_file(tmp_path: Path) -> Path:
    path = tmp_path / ".env"
    path.write_text(make_secrets("--env").stdout + "PORT=8080\n# mine\n")
    return path


def variables(path: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in path.read_text().splitlines() if "=" in line)
    return {name: value for name, _, value in lines}


def test_of_a_file_of_compose_only_the_chosen_secrets_change(compose_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "new.env"
    done = make_secrets("--rotate", str(compose_file), "--only", "REDIS_PASSWORD", "--output", str(output))
    assert done.returncode == 0, done.stderr
    old, new = variables(compose_file), variables(output)
    assert {name for name in old if old[name] != new[name]} == {"REDIS_PASSWORD"}
    assert output.read_text().endswith("PORT=8080\n# mine\n")
    assert output.stat().st_mode & 0o777 == 0o600
    assert [value for value in (*old.values(), *new.values()) if len(value) > 4 and value in done.stdout] == []
    assert [line for line in done.stdout.splitlines() if "exec" in line and "redis-cli" not in line] == []


def test_a_file_of_compose_without_the_passwords_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PORT=8080\n")
    printed = refusal("--rotate", str(tmp_path / ".env"), "--output", str(tmp_path / "new.env"))
    assert "has no POSTGRES_PASSWORD, REDIS_PASSWORD, ETCD_PASSWORD" in printed


@pytest.mark.redis
@pytest.mark.postgres
@pytest.mark.invariant("The printed commands rotate the passwords of PostgreSQL and Redis with compose.")
def test_the_commands_for_compose_rotate_the_passwords_of_both_servers(
    compose_file: Path, tmp_path: Path, postgres_with_passwords: PostgresServer, fragile_redis: RedisServer
) -> None:
    postgres, redis, output = postgres_with_passwords, fragile_redis, tmp_path / "new.env"
    old = variables(compose_file) | {"REDIS_PASSWORD": redis.password}
    compose_file.write_text("".join(f"{name}={value}\n" for name, value in old.items()))
    with psycopg.connect(
        host=str(postgres.socket_directory), port=postgres.port, user="postgres", dbname="regatta"
    ) as link:
        link.execute(f"CREATE ROLE regatta LOGIN PASSWORD '{old['POSTGRES_PASSWORD']}'")
    names = "POSTGRES_PASSWORD,REDIS_PASSWORD"
    rotation = make_secrets("--rotate", str(compose_file), "--only", names, "--output", str(output))
    assert rotation.returncode == 0, rotation.stderr
    new = variables(output)
    (tmp_path / "docker").write_text(_DOCKER)
    (tmp_path / "docker").chmod(0o700)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "REDIS_PORT": str(redis.port),
        "PGHOST": str(postgres.socket_directory),
        "PGPORT": str(postgres.port),
    }
    done = subprocess.run(
        ["bash"], input=rotation.stdout, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    addresses = [
        {
            "REGATTA_DATABASE_URL": f"postgresql://regatta:{of['POSTGRES_PASSWORD']}@127.0.0.1:{postgres.port}/regatta",
            "REGATTA_REDIS_URL": redis.url(password=of["REDIS_PASSWORD"]),
            "REGATTA_BROKER_URL": redis.url(password=of["REDIS_PASSWORD"]),
        }
        for of in (old, new)
    ]
    check_postgres(addresses[1])
    check_redis(addresses[1])
    for refused in (check_postgres, check_redis):
        with pytest.raises((psycopg.OperationalError, AuthenticationError)):
            refused(addresses[0])
    assert variables(compose_file) == new
    assert (tmp_path / "calls").read_text().splitlines()[-1] == "compose --file compose.yaml up --detach --wait"


def check(portal: dict[str, str]) -> None:
    """Connect to all servers with the addresses of the Secret `portal`."""
    check_postgres(portal)
    check_redis(portal)
    check_etcd(portal)


def check_postgres(portal: dict[str, str]) -> None:
    psycopg.connect(portal["REGATTA_DATABASE_URL"]).close()


def check_redis(portal: dict[str, str]) -> None:
    for name in ("REGATTA_REDIS_URL", "REGATTA_BROKER_URL"):
        Redis.from_url(portal[name]).ping()


def check_etcd(portal: dict[str, str]) -> None:
    etcd_accounts.known_attempts(portal["REGATTA_COORDINATION"])


@pytest.mark.etcd
def test_the_password_of_etcd_may_be_changed_again_after_an_interrupted_rotation(
    etcd_with_accounts: EtcdServer,
) -> None:
    site = f"etcd://root:s3cret%2F%40@{etcd_with_accounts.server}"
    for _ in range(2):
        etcd_accounts.change_password(site, "the-new-one")
    with pytest.raises(AccessDenied):
        etcd_accounts.change_password(site, "a-third-one")
