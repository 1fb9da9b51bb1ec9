"""Environment settings with a structure beyond a text or a number."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from portal import env
from runtime.messages import training as messages
from tests.messages import pattern

ROOT = Path(__file__).resolve().parents[2]
NAME = "REGATTA_COORDINATION"


@pytest.mark.parametrize(("written", "read"), [(None, ""), ("", ""), ("etcd://a", "etcd://a:2379")])
def test_the_address_of_an_etcd_may_be_left_out(monkeypatch, written, read):
    monkeypatch.delenv(NAME, raising=False)
    if written is not None:
        monkeypatch.setenv(NAME, written)
    assert env.etcd_address(NAME) == read


@pytest.mark.parametrize("written", ["127.0.0.1:2379", "http://a:2379", "etcd://a:port", "sqlite:///a"])
def test_an_invalid_etcd_address_is_an_error(monkeypatch, written):
    monkeypatch.setenv(NAME, written)
    with pytest.raises(ImproperlyConfigured, match=f"{NAME} .*{pattern(messages.ETCD_ADDRESS_INVALID)}"):
        env.etcd_address(NAME)


def test_a_database_is_read_from_an_address(monkeypatch) -> None:
    monkeypatch.setenv("DATABASE", "postgresql://re%40gatta:p%2Fw@db.example:6432/portal?sslmode=require")
    assert env.database("DATABASE", 20) == {
        "ENGINE": "portal.common.postgresql",
        "POOL_SIZE": 20,
        "NAME": "portal",
        "USER": "re@gatta",
        "PASSWORD": "p/w",
        "HOST": "db.example",
        "PORT": "6432",
        "OPTIONS": {**env._POSTGRES_TIMEOUTS, "sslmode": "require"},
    }


def test_a_database_may_be_reached_by_a_socket(monkeypatch) -> None:
    monkeypatch.setenv("DATABASE", "postgresql://postgres@%2Frun%2Fpg/portal")
    found = env.database("DATABASE", 20)
    assert found is not None
    assert (found["HOST"], found["PORT"], found["OPTIONS"]) == ("/run/pg", "", env._POSTGRES_TIMEOUTS)


@pytest.mark.parametrize(("written", "size"), [("0", 0), ("8", 8), ("1000", 1000)])
def test_the_size_of_the_pool_is_read(monkeypatch, written: str, size: int) -> None:
    monkeypatch.setenv("POOL", written)
    assert env.pool_size("POOL", 20) == size


@pytest.mark.parametrize("written", ["7", "1001", "-1", "2.5", "many"])
def test_a_pool_of_another_size_is_refused(monkeypatch, written: str) -> None:
    monkeypatch.setenv("POOL", written)
    with pytest.raises(ImproperlyConfigured, match="POOL"):
        env.pool_size("POOL", 20)


def test_without_an_address_there_is_the_embedded_database(monkeypatch) -> None:
    monkeypatch.setenv("DATABASE", "")
    assert env.database("DATABASE", 20) is None


@pytest.mark.parametrize("url", ["mysql://a/b", "postgresql://host", "postgresql://host:port/b", "postgresql://a/b/c"])
def test_an_invalid_database_url_is_refused_with_the_format(monkeypatch, url: str) -> None:
    monkeypatch.setenv("DATABASE", url)
    with pytest.raises(ImproperlyConfigured, match=r"DATABASE .* write postgresql://"):
        env.database("DATABASE", 20)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://h", {"EMAIL_HOST": "h", "EMAIL_PORT": 587, "EMAIL_USE_TLS": True}),
        ("smtps://u%40x:p%3A@h:99", {"EMAIL_HOST_USER": "u@x", "EMAIL_HOST_PASSWORD": "p:", "EMAIL_PORT": 99}),
        ("smtp+plain://h", {"EMAIL_PORT": 25, "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend"}),
        ("", {"EMAIL_BACKEND": "django.core.mail.backends.console.EmailBackend"}),
    ],
)
def test_a_mail_server_is_read(monkeypatch: pytest.MonkeyPatch, url: str, expected: dict) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", url)
    found = env.mail_server("REGATTA_SOMETHING")
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("url", ["mail.example.org", "http://h", "smtp://", "smtp://h:many"])
def test_an_invalid_mail_server_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", url)
    with pytest.raises(ImproperlyConfigured, match="REGATTA_SOMETHING"):
        env.mail_server("REGATTA_SOMETHING")


@pytest.mark.parametrize(("raw", "seconds"), [("20/min", 60), ("5/h", 3600), ("1000/second", 1), ("1/d", 86400)])
def test_a_rate_is_read(monkeypatch: pytest.MonkeyPatch, raw: str, seconds: int) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", raw)
    assert env.rate("REGATTA_SOMETHING", "1/s") == (int(raw.partition("/")[0]), timedelta(seconds=seconds))


@pytest.mark.parametrize("raw", ["20", "0/min", "-1/min", "20/fortnight", "/min", "1.5/min"])
def test_an_invalid_rate_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", raw)
    with pytest.raises(ImproperlyConfigured, match="REGATTA_SOMETHING"):
        env.rate("REGATTA_SOMETHING", "1/s")


def test_a_word_that_is_no_choice_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", "ajar")
    with pytest.raises(ImproperlyConfigured, match=r"REGATTA_SOMETHING.*open, closed"):
        env.choice("REGATTA_SOMETHING", "open", ("open", "closed"))


@pytest.mark.parametrize("raw", ["10.0.0.1/8", "proxy.example.org", "10.0.0.0/33", "10.0.0.1;10.0.0.2"])
def test_an_invalid_network_is_refused_by_its_name_with_the_format(monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", raw)
    with pytest.raises(ImproperlyConfigured, match=r"REGATTA_SOMETHING.*10\.0\.0\.0/8"):
        env.networks("REGATTA_SOMETHING", [])


def test_networks_are_read_in_both_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", "10.0.0.7, fd00::/8,")
    assert [str(each) for each in env.networks("REGATTA_SOMETHING", [])] == ["10.0.0.7/32", "fd00::/8"]


@pytest.mark.parametrize("raw", ["*", "https://train.example.org", "train.example.org:8443", "::1", "a b"])
def test_an_invalid_host_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", raw)
    with pytest.raises(ImproperlyConfigured, match=r"REGATTA_SOMETHING.*train\.example\.org"):
        env.hosts("REGATTA_SOMETHING", [], "http://127.0.0.1:8000")


@pytest.mark.parametrize(
    ("ingest", "expected"),
    [
        ("http://127.0.0.1:8000", [".example.org", "127.0.0.1"]),
        ("http://[fd00::5]:8000", [".example.org", "[fd00::5]"]),
        ("https://.example.org", [".example.org"]),
    ],
)
def test_the_host_name_for_agents_is_allowed(monkeypatch: pytest.MonkeyPatch, ingest: str, expected: list[str]) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", ".example.org")
    assert env.hosts("REGATTA_SOMETHING", [], ingest) == expected


def test_an_invalid_address_for_agents_is_refused_by_its_name() -> None:
    with pytest.raises(ImproperlyConfigured, match="REGATTA_INGEST_URL"):
        env.hosts("REGATTA_SOMETHING", [], "127.0.0.1")


# --- Location of files -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("value", ["", "/srv/regatta", "storage"])
def test_a_directory_is_no_bucket(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", value)
    assert env.bucket("REGATTA_SOMETHING") is None


@pytest.mark.parametrize(
    ("value", "bucket", "prefix"),
    [("s3://regatta", "regatta", ""), ("s3://re.gatta-1/", "re.gatta-1", ""), ("s3://regatta/a/b/", "regatta", "a/b")],
)
def test_a_bucket_with_a_prefix_of_its_keys(
    monkeypatch: pytest.MonkeyPatch, value: str, bucket: str, prefix: str
) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", value)
    monkeypatch.setenv("REGATTA_S3_ENDPOINT", "http://127.0.0.1:9000")
    found = {"bucket": bucket, "prefix": prefix, "endpoint": "http://127.0.0.1:9000", "region": ""}
    assert env.bucket("REGATTA_SOMETHING") == found


@pytest.mark.parametrize("value", ["s3://", "s3:///a", "s3://Upper", "gs://bucket", "s3://regatta/.hidden"])
def test_an_invalid_bucket_is_an_error(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", value)
    with pytest.raises(ImproperlyConfigured, match="REGATTA_SOMETHING names no bucket"):
        env.bucket("REGATTA_SOMETHING")


def test_an_endpoint_that_is_not_an_address_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_SOMETHING", "s3://regatta")
    monkeypatch.setenv("REGATTA_S3_ENDPOINT", "ceph.example.org")
    with pytest.raises(ImproperlyConfigured, match="REGATTA_S3_ENDPOINT is no address"):
        env.bucket("REGATTA_SOMETHING")


@pytest.mark.parametrize(("written", "read"), [("0", 0.0), ("365", 365.0), ("1000.5", 1000.5)])
def test_days_from_a_least_number_on(monkeypatch, written, read):
    monkeypatch.setenv("DAYS", written)
    assert env.days_from("DAYS", 400.0, least=365.0) == read


def test_fewer_days_than_the_least_number_are_refused_with_the_number(monkeypatch) -> None:
    monkeypatch.setenv("DAYS", "30")
    with pytest.raises(ImproperlyConfigured, match="DAYS is 30; it must be at least 365, or 0 to keep all"):
        env.days_from("DAYS", 400.0, least=365.0)


@pytest.mark.parametrize(
    "url", ["redis://:p%40w@redis.example:6379/1", "rediss://user:pw@redis.example", "filesystem://"]
)
def test_the_address_of_a_redis_is_taken_as_written(monkeypatch, url: str) -> None:
    monkeypatch.setenv("BROKER", url)
    assert env.redis_address("BROKER", "filesystem://") == url


@pytest.mark.parametrize(
    "url",
    ["redis.example:6379", "redis://", "redis://:p@ss/w@host/0", "redis://host:port/0", "http://host", "redis://h/x"],
)
def test_an_invalid_redis_address_is_refused_without_its_password(monkeypatch, url: str) -> None:
    monkeypatch.setenv("BROKER", url)
    with pytest.raises(ImproperlyConfigured, match=r"BROKER .* write redis://") as refused:
        env.redis_address("BROKER", "filesystem://")
    assert "p@ss" not in str(refused.value)


def test_without_the_address_of_a_redis_the_default_holds(monkeypatch) -> None:
    monkeypatch.setenv("BROKER", "")
    assert env.redis_address("BROKER", "filesystem://") == "filesystem://"


@pytest.mark.parametrize(
    ("gateway", "etcd", "fault"),
    [
        ("etcd://a:b@gateway:2379", "etcd://root:x@etcd:2379", "contains an account"),
        ("etcd://gateway:2379/site", "etcd://root:x@etcd:2379", "contains an account or a prefix"),
        ("etcd://gateway:2379", "etcd://etcd:2379", "contains no account"),
        ("etcd://gateway:2379", "", "contains no account"),
    ],
)
def test_a_coordination_gateway_needs_an_etcd_with_accounts(monkeypatch, gateway, etcd, fault):
    monkeypatch.setenv(NAME, gateway)
    with pytest.raises(ImproperlyConfigured, match=fault):
        env.gateway_address(NAME, etcd)


def test_the_address_of_the_coordination_gateway_may_be_left_out(monkeypatch):
    monkeypatch.delenv(NAME, raising=False)
    assert env.gateway_address(NAME, "") == ""
    monkeypatch.setenv(NAME, "etcd://gateway")
    assert env.gateway_address(NAME, "etcd://root:x@etcd") == "etcd://gateway:2379"


def test_the_time_for_a_connection_to_the_database_can_be_changed(monkeypatch) -> None:
    monkeypatch.setenv("DATABASE", "postgresql://db/portal?connect_timeout=10")
    assert env.database("DATABASE", 20)["OPTIONS"]["connect_timeout"] == "10"


# --- Ports and proxies -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("written", "read"), [("", 0), ("0", 0), ("8001", 8001)])
def test_agents_have_a_port_of_their_own_only_when_it_is_named(monkeypatch, written, read) -> None:
    monkeypatch.setenv("REGATTA_AGENT_PORT", written)
    if not written:
        monkeypatch.delenv("REGATTA_AGENT_PORT")
    assert env.other_port("REGATTA_AGENT_PORT", 8000) == read


@pytest.mark.parametrize("written", ["8000", "65536", "-1", "http"])
def test_a_port_for_agents_that_cannot_be_is_an_error(monkeypatch, written) -> None:
    monkeypatch.setenv("REGATTA_AGENT_PORT", written)
    with pytest.raises(ImproperlyConfigured, match="REGATTA_AGENT_PORT"):
        env.other_port("REGATTA_AGENT_PORT", 8000)


@pytest.mark.parametrize(
    "written", ["10.244.1.7", "10.244.1.0/24", "192.0.2.1,10.0.0.0/28", "fd00::5", "fd00::/64", ""]
)
def test_addresses_and_narrow_networks_may_be_trusted_proxies(monkeypatch, written) -> None:
    monkeypatch.setenv("PROXIES", written)
    env.require_narrow("PROXIES", env.networks("PROXIES", []))


@pytest.mark.parametrize(
    "written", ["10.0.0.0/8", "172.16.0.0/12", "10.244.0.0/16", "10.244.0.0/23", "0.0.0.0/0", "fd00::/8", "fd00::/63"]
)
def test_networks_that_may_hold_pods_may_not(monkeypatch, written) -> None:
    monkeypatch.setenv("PROXIES", f"192.0.2.1,{written}")
    with pytest.raises(ImproperlyConfigured, match=f"PROXIES names {written}, .*REGATTA_AGENT_PORT"):
        env.require_narrow("PROXIES", env.networks("PROXIES", []))


@pytest.mark.invariant("The portal does not trust the headers of pods.")
@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ({"REGATTA_BACKEND": "kubernetes"}, False),
        ({"REGATTA_BACKEND": "kubernetes", "REGATTA_AGENT_PORT": "8001"}, True),
        ({"REGATTA_BACKEND": "local"}, True),
    ],
)
def test_a_wide_network_of_proxies_needs_a_port_for_agents_on_kubernetes(tmp_path, given, starts) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("REGATTA_")}
    ours = {"REGATTA_DATA_DIR": str(tmp_path), "REGATTA_TRUSTED_PROXIES": "10.0.0.0/8", **given}
    command = [sys.executable, "-c", "import portal.settings"]
    done = subprocess.run(
        command, cwd=ROOT, env={**inherited, **ours}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode == 0, "REGATTA_TRUSTED_PROXIES" in done.stderr) == (starts, not starts), done.stderr


def test_earlier_secret_keys_are_read_from_a_list(tmp_path: Path) -> None:
    written = {
        "REGATTA_DATA_DIR": str(tmp_path),
        "REGATTA_SECRET_KEY": "new",
        "REGATTA_SECRET_KEY_FALLBACKS": "old, older",
    }
    shown = subprocess.run(
        [sys.executable, "-c", "from portal import settings; print(settings.SECRET_KEY_FALLBACKS)"],
        cwd=ROOT,
        env={**os.environ, **written},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == "['old', 'older']"
