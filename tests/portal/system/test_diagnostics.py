"""The archive of diagnostics: its contents, and what it must not contain."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from datetime import timedelta
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from jobs.messages import jobs as job_messages
from jobs.models import FailedTask, Transition
from portal.common.clock import now
from portal.models import ProcessHeartbeat
from portal.system import diagnostics, settings_report
from rbac.models import AuditEntry, FailedEmail
from tests.factories import make_job, make_token
from tests.personas import Personas

pytestmark = pytest.mark.django_db


def files(body: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.testzip() is None
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def made(limit: int = diagnostics.LIMIT_BYTES) -> dict[str, Any]:
    return files(b"".join(diagnostics.archive(now(), limit)))


def test_it_has_all_files() -> None:
    assert set(made()) == {*diagnostics.FILES, "left-out.json"}


def test_none_of_its_files_failed() -> None:
    assert [name for name, content in made().items() if isinstance(content, dict) and set(content) == {"error"}] == []


def test_it_names_versions_migrations_and_packages() -> None:
    found = made()
    assert found["versions.json"]["django"].startswith("5.")
    assert "rbac.0001_initial" in found["migrations.json"]["applied"]
    assert any(package.lower().startswith("django==") for package in found["packages.json"])


def test_a_transition_is_a_code_without_the_text_of_a_user(personas: Personas) -> None:
    job = make_job(personas.namespace, personas.owner, name="secret-project")
    why = job_messages.CANCELLED_BY(name="the-boss")
    Transition.objects.create(job=job, attempt=1, at=now(), old="QUEUED", state="CANCELLED", why=why)
    found = made()
    assert found["transitions.json"][0]["why"] == why.code
    assert "the-boss" not in json.dumps(found)
    assert "secret-project" not in json.dumps(found)


def test_owners_of_tokens_are_counted_and_not_named(personas: Personas) -> None:
    make_token(personas.owner, expires=now() + timedelta(days=2))
    entries = made()["components.json"]["entries"]
    (tokens,) = [entry for entry in entries if entry["name"] == "tokens"]
    assert tokens["facts"] == {"days": 14, "count": 1}


def test_a_setting_that_is_not_on_the_list_is_only_set_or_not(settings: Any) -> None:
    settings.A_NEW_SETTING, settings.AN_EMPTY_SETTING = "its value", ""
    found = settings_report.report()["settings"]
    assert (found["A_NEW_SETTING"], found["AN_EMPTY_SETTING"]) == ("set", "not set")
    assert found["SWEEP_SECONDS"] == 1.0


def test_a_file_that_cannot_be_made_has_the_class_of_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("with a secret")

    monkeypatch.setattr(diagnostics, "FILES", {"jobs.json": fails})
    assert made() == {"jobs.json": {"error": "RuntimeError"}, "left-out.json": []}


def test_files_beyond_the_limit_are_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "FILES", {"large.json": lambda: "x" * 3000, "small.json": lambda: "y"})
    assert made(1000) == {"small.json": "y", "left-out.json": ["large.json"]}


# --- Secrets ---------------------------------------------------------------------------------------------------------
# A value for each secret, with characters that an address encodes. None contains another.
NAMES = (
    *("database", "broker", "redis", "etcd", "signing", "mail", "oidc", "github", "gitlab", "google", "baidu"),
    *("aws", "session", "admin", "other", "pip", "error", "task"),
)
SECRETS = {name: f"S3cr?t/{name}+&ü" for name in NAMES}


def encoded(name: str) -> str:
    return quote(SECRETS[name], safe="")


def plant(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a secret into every secret setting, into the environment, and into texts of errors."""
    database = {**settings.DATABASES["default"], "PASSWORD": SECRETS["database"]}
    monkeypatch.setitem(settings.DATABASES, "default", database)
    settings.BROKER_URL = f"redis://:{encoded('broker')}@broker:6379/0"
    settings.REDIS_URL = f"redis://:{encoded('redis')}@127.0.0.1:1/0"
    settings.CHANNEL_LAYERS = {"default": {"CONFIG": {"hosts": [settings.REDIS_URL]}}}
    settings.COORDINATION = f"etcd://root:{encoded('etcd')}@127.0.0.1:1,127.0.0.1:2/prefix"
    settings.SECRET_KEY = SECRETS["signing"]
    settings.EMAIL_HOST_PASSWORD = SECRETS["mail"]
    providers = {"OIDC": "oidc", "GITHUB": "github", "GITLAB": "gitlab", "GOOGLE_OAUTH2": "google", "BAIDU": "baidu"}
    for variable, name in providers.items():
        setattr(settings, f"SOCIAL_AUTH_{variable}_SECRET", SECRETS[name])
    environment = {
        "REGATTA_DATABASE_URL": f"postgresql://regatta:{encoded('database')}@db:5432/regatta",
        "REGATTA_MAIL_SERVER": f"smtp://regatta:{encoded('mail')}@mail:587",
        "REGATTA_ADMIN_PASSWORD": SECRETS["admin"],
        "AWS_SECRET_ACCESS_KEY": SECRETS["aws"],
        "AWS_SESSION_TOKEN": SECRETS["session"],
        "SOMEBODYS_API_KEY": SECRETS["other"],
        "PIP_INDEX_URL": f"https://user:{encoded('pip')}@index.example.org/simple",
    }
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    ProcessHeartbeat.objects.create(
        kind="worker",
        host="node",
        pid=1,
        version="1",
        started=now(),
        seen=now(),
        last_error=f"redis://:{SECRETS['error']}@cache refused {SECRETS['redis']}",
        last_error_at=now(),
    )
    text = f"auth {base64.b64encode(SECRETS['aws'].encode()).decode()} password={SECRETS['task']}"
    FailedTask.objects.create(name="e-mail", since=now(), last=now(), failures=1, error=text)
    FailedEmail.objects.create(
        template="reset", domain="example.org", first=now(), last=now(), tries=1, error="SMTPDataError 554"
    )


def forms(secret: str) -> set[str]:
    raw = secret.encode()
    encodings = {quote(secret, safe=""), quote(secret), quote_plus(secret), json.dumps(secret)[1:-1], raw.hex()}
    base64s = {base64.b64encode(raw).decode().rstrip("="), base64.urlsafe_b64encode(raw).decode().rstrip("=")}
    return {secret, *encodings, *base64s}


@pytest.mark.invariant("Diagnostics contain no secret of the settings or the environment, in no encoding.")
def test_no_secret_is_in_the_archive(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(settings, monkeypatch)
    body = b"".join(diagnostics.archive(now()))
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        text = "\n".join(archive.read(name).decode() for name in archive.namelist())
    found = [(name, form) for name, secret in SECRETS.items() for form in forms(secret) if form in text]
    assert found == []
    assert "refused" in text


# --- The button ------------------------------------------------------------------------------------------------------
def test_an_admin_downloads_it_and_that_is_audited(personas: Personas) -> None:
    answer = personas.client("admin").post("/admin/system/diagnostics")
    assert answer.headers["Content-Type"] == "application/zip"
    assert "versions.json" in files(b"".join(answer.streaming_content))
    assert AuditEntry.objects.filter(action="system.diagnostics", actor=personas.admin).count() == 1


def test_it_is_not_made_by_following_a_link(personas: Personas) -> None:
    assert personas.client("admin").get("/admin/system/diagnostics").status_code == 405
