"""``manage.py prepare``: preparation before the portal's processes start."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from jobs.launch import coordination_accounts
from rbac.models import User
from runtime.coordination import etcd_accounts
from runtime.coordination.etcd_probe import PATCHED, open_servers
from tests.servers.coordination_gateway import CoordinationGateway
from tests.servers.etcd_server import EtcdServer
from tests.servers.redis_server import RedisServer


def prepared() -> str:
    output = io.StringIO()
    call_command("prepare", stdout=output)
    return output.getvalue()


@pytest.mark.django_db
def test_the_first_time_opens_the_account_of_the_admin_and_later_ones_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REGATTA_ADMIN_PASSWORD", "only-for-this-test")
    assert "is up to date." in prepared()
    admin = User.objects.get(username="admin")
    assert admin.check_password("only-for-this-test")
    monkeypatch.setenv("REGATTA_ADMIN_PASSWORD", "another-one-for-this-test")
    prepared()
    assert User.objects.get(username="admin").check_password("only-for-this-test")


@pytest.mark.etcd
@pytest.mark.django_db
def test_etcd_asks_for_an_account_afterwards(
    tmp_path_factory: pytest.TempPathFactory, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGATTA_ADMIN_PASSWORD", "only-for-this-test")
    server = EtcdServer(tmp_path_factory.mktemp("open-etcd"))
    server.start()
    try:
        settings.COORDINATION = f"etcd://root:open-sesame@{server.server}"
        assert "etcd asks for accounts now" in prepared()
        with pytest.raises(AssertionError, match="user name is empty"):
            server.ctl("get", "/x")
        assert server.ctl("get", "/x", account="root:open-sesame") == ""
        assert "etcd asks" not in prepared()  # it did before
        # An attempt gets an account of its own, as before.
        assert "regatta-" in etcd_accounts.open_account(settings.COORDINATION, "job", 1, "secret")
        settings.COORDINATION = f"etcd://root:wrong@{server.server}"
        with pytest.raises(CommandError, match="password"):
            prepared()
    finally:
        server.kill()


@pytest.mark.redis
def test_a_password_that_redis_refuses_ends_it(settings: Settings, redis: RedisServer) -> None:
    settings.REDIS_URL = redis.url(password="an-old-one")
    with pytest.raises(CommandError, match="refuses REGATTA_REDIS_URL"):
        prepared()


@pytest.mark.etcd
@pytest.mark.django_db
def test_the_password_of_etcd_is_changed_to_the_line_on_standard_input(
    tmp_path_factory: pytest.TempPathFactory, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EtcdServer(tmp_path_factory.mktemp("changed-etcd"))
    server.start()
    try:
        server.switch_authentication_on()
        settings.COORDINATION = f"etcd://root:s3cret%2F%40@{server.server}"
        monkeypatch.setattr("sys.stdin", io.StringIO("the new one\n"))
        call_command("change_etcd_password", stdout=io.StringIO())
        assert server.ctl("get", "/x", account="root:the new one") == ""
        settings.COORDINATION = f"etcd://root:neither@{server.server}"
        monkeypatch.setattr("sys.stdin", io.StringIO("another\n"))
        with pytest.raises(CommandError, match="password"):
            call_command("change_etcd_password")
    finally:
        server.kill()


@pytest.mark.parametrize(("site", "line"), [("etcd://a:1", "new\n"), ("etcd://root:old@a:1", "\n")])
def test_without_an_account_or_a_password_nothing_is_changed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, site: str, line: str
) -> None:
    settings.COORDINATION = site
    monkeypatch.setattr("sys.stdin", io.StringIO(line))
    with pytest.raises(CommandError, match="Nothing was changed"):
        call_command("change_etcd_password")


def test_an_etcd_without_an_account_in_the_settings_is_left_alone(settings: Settings) -> None:
    settings.COORDINATION = "etcd://127.0.0.1:9"
    assert not coordination_accounts.guard()


# --- An etcd that obeys callers without an account --------------------------------------------------------------------
@pytest.fixture
def unpatched(guarded: EtcdServer, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The etcd of the tests, which is one of these, on a cluster."""
    monkeypatch.setenv("REGATTA_ADMIN_PASSWORD", "only-for-this-test")
    settings.COORDINATION = guarded.url_of_root()
    settings.CLUSTER_BACKEND = "kubernetes"
    return settings


@pytest.mark.invariant("The portal does not start on a cluster whose jobs reach an etcd that obeys strangers.")
@pytest.mark.etcd
@pytest.mark.django_db
def test_an_etcd_that_obeys_strangers_is_refused_with_the_version_to_install(unpatched: Settings) -> None:
    unpatched.COORDINATION_JOBS = ""
    with pytest.raises(CommandError, match=re.escape(PATCHED)):
        prepared()


@pytest.mark.etcd
@pytest.mark.django_db
def test_behind_the_gateway_an_etcd_that_obeys_strangers_is_warned_of(
    unpatched: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    unpatched.COORDINATION_JOBS = "etcd://coordination-gateway:2379"
    assert "is up to date." in prepared()
    assert PATCHED in capsys.readouterr().err


@pytest.mark.etcd
@pytest.mark.processes
def test_a_server_that_refuses_strangers_is_not_reported(guarded: EtcdServer, tmp_path: Path) -> None:
    gateway = CoordinationGateway(guarded.url, tmp_path)
    gateway.start()
    try:
        assert open_servers(f"etcd://{guarded.server},{gateway.server}").keys() == {guarded.server}
    finally:
        gateway.kill()
