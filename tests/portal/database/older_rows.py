"""Rows of an earlier version of the portal, one or more in each of its tables.

``LEAVES`` names the last migrations of that version. The rows are written through the models of that version; its code
made the JSON, packed bytes and digests in them.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.serializers import JSONSerializer
from django.core import signing

from rbac.models import User

LEAVES = (
    ("rbac", "0005_connections"),
    ("quota", "0003_storage"),
    ("datasets", "0003_parts_by_any_checksum"),
    ("jobs", "0006_neighbours_on_the_cluster"),
)
AT = datetime(2026, 11, 10, 18, 30, 15, 250000, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
STATES = (
    *("QUEUED", "ADMITTED", "BUILDING", "LAUNCHING", "REGISTERING", "RUNNING"),
    *("STOPPING", "SUCCEEDED", "FAILED", "CANCELLED"),
)

PASSWORD = "a-long-enough-one"
_PASSWORD_HASH = "argon2$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHRzYWx0$bkLdumbhytpp665fvY53Ia3lRr6nHMz2kkvXV+IZagE"
SESSION, ANONYMOUS = "8k3j5h2g6f1d9s7a4p0o8i6u5y3t2r1e", "q1w2e3r4t5y6u7i8o9p0a1s2d3f4g5h6"
TOKEN = "rgt_0123456789abcdef0123456789abcdef"
CODE, VERIFIER = "a-code-that-the-browser-carries", "v" * 64
RECOVERY = "abcd-efgh"
# Normalisation makes 18 letters of this one.
LIGATURES = "\ufdfa" * 150
DOTS = ".."

RUNNING, CODE_DIGEST = uuid.UUID(int=6), "c" * 64
CONTENT = hashlib.sha256(b"1,2\n").hexdigest()
SPEC: Mapping[str, Any] = {
    "name": "digits",
    "framework": "native",
    "image": "",
    "entrypoint": "train.py",
    "requirements": [],
    "dataset": "public/digits",
    "passes": 1,
    "mode": "sync",
    "roles": {
        "trainer": {"replicas": 2, "min": 1, "max": 4, "cpu": 1.0, "memory": "512Mi", "gpu": 0},
        "pserver": {"replicas": 1, "cpu": 1.0, "memory": "512Mi"},
        "master": {"replicas": 1},
    },
    "env": {},
    "priority": "normal",
    "timeout": "1h",
    "retries": 0,
    "elastic": True,
}
REHEARSAL = {"kill": "trainer", "every": "30s", "by": "ada", "last": "2026-11-20T00:00:00+00:00", "done": 2}
TAKEN = {
    "place": {"pod": "a", "latest": 5, "within": 1, "before": 0},
    "lines": 3,
    "points": 2,
    "kept": 40,
    "dropped": 0,
    "costs": {},
}
# Three lines and two points, packed.
_LINES = (
    "AXgBU2FgYKhWylOyMtZRKs4vLUpOLVayio421FEqKUrMzEst0jVQio2tVQAqY0g9e9aRgaEBSjMwgvi8QHEQZgcpYGQqSCwuVjBUSEpNz8wrTlQoTyzK"
    "y8xLt1J4snfB06V7SzJSFVLzUgAaQCJj"
)
_POINTS = (
    "ADQAAAB7Im4iOjIsImtleXMiOlsiY29zdCJdLCJzb3VyY2VzIjpbWzEsInRyYWluZXItMCJdXX0gAAAAAGXNzUEAAIAAZc3NQQAAAAAAAPA/AAAAAAAA"
    "AEAAAAAAAADgPwAAAAAAANA/"
)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def insert(apps: Any) -> None:
    """Write all rows, through ``apps``: the models as of ``LEAVES``."""
    people = _accounts(apps.get_model)
    versions = _datasets(apps.get_model, people)
    _quota(apps.get_model, people)
    _jobs(apps.get_model, people, versions)


def _accounts(model: Any) -> Mapping[str, Any]:
    users, namespaces = model("rbac", "User").objects, model("rbac", "Namespace").objects
    ada = users.create(username="ada", email="Ada@example.org", password="!", is_superuser=True)
    bob = users.create(username="bob", password="!", first_name="Bob", email_confirmed=AT)
    carol = users.create(username="Car\u00f6l", password=_PASSWORD_HASH, last_login=AT)
    users.create(username="new", email="new@example.org", is_active=False, awaiting="confirmation")
    users.create(username=DOTS, password="!")
    users.create(username=LIGATURES, password="!")
    team, other = namespaces.create(name="team"), namespaces.create(name="o" * 63)
    gone = namespaces.create(name="gone", closed=AT)
    namespaces.create(name="ada", personal_of=ada)
    robot = users.create(username="team/robot", password="!", service_of=team)
    members = model("rbac", "Membership").objects
    for namespace, user, role in ((team, ada, "owner"), (team, bob, "viewer"), (other, carol, "developer")):
        members.create(namespace=namespace, user=user, role=role)
    members.create(namespace=team, user=robot, role="developer")
    now = datetime.now(UTC)
    tokens = model("rbac", "ApiToken").objects
    tokens.create(user=bob, name="laptop", digest=digest(TOKEN), scopes=["namespace:read"], expires=now + DAY)
    tokens.create(user=robot, name="robot", digest=digest("another"), created_by=ada, revoked=AT)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
    model("rbac", "Connection").objects.create(
        digest=digest(CODE), challenge=challenge, user=bob, name="laptop", days=30, expires=now + DAY
    )
    invitations = model("rbac", "Invitation").objects
    invitations.create(namespace=team, user=carol, role="viewer", invited_by=ada, expires=now + DAY)
    invitations.create(namespace=team, email="x@example.org", digest="d" * 64, invited_by=ada, expires=AT, ended=AT)
    codes = model("rbac", "RecoveryCode").objects
    codes.create(user=bob, digest=digest(f"{bob.pk}:{RECOVERY.replace('-', '')}"))
    codes.create(user=bob, digest=digest("used"), used=AT)
    model("otp_totp", "TOTPDevice").objects.create(user=bob, name="Regatta", confirmed=True)
    entries = model("rbac", "AuditEntry").objects
    entries.create(action="quota.set", target="team", actor=ada, namespace="team", before={"cpu": 1}, after={"cpu": 2})
    entries.create(action="sign-in", target="n" * 200, outcome="refused", address="2001:db8::1", reason="r" * 500)
    entries.create(action="job.cancel", target="x", actor=bob, impersonator=ada, namespace="gone", request_id="1")
    _sessions(model, ada, now)
    return {"ada": ada, "bob": bob, "team": team, "other": other, "gone": gone}


def _sessions(model: Any, ada: Any, now: datetime) -> None:
    content = {
        SESSION_KEY: str(ada.pk),
        BACKEND_SESSION_KEY: "django.contrib.auth.backends.ModelBackend",
        HASH_SESSION_KEY: User(password=ada.password).get_session_auth_hash(),
        "origin": {"created": AT.isoformat(), "address": "192.0.2.1", "agent": "Netscape 4"},
    }
    sessions = model("rbac", "Session").objects
    for key, user, data in ((SESSION, ada, content), (ANONYMOUS, None, {})):
        sessions.create(
            session_key=key,
            session_data=signing.dumps(
                data, salt="django.contrib.sessions.SessionStore", serializer=JSONSerializer, compress=True
            ),
            expire_date=now + 7 * DAY,
            handle=digest(key)[:32],
            user=user,
            address="192.0.2.1" if user else None,
            agent="Netscape 4" if user else "",
            created=AT,
            seen=AT,
        )


def _datasets(model: Any, people: Mapping[str, Any]) -> Mapping[str, Any]:
    team, ada = people["team"], people["ada"]
    datasets, versions = model("datasets", "Dataset").objects, model("datasets", "Version").objects
    ocr = datasets.create(namespace=team, name="ocr", description="Letters", format="csv", owner=ada, created=AT)
    datasets.create(namespace=people["other"], name="open", visibility="public", owner=ada, created=AT)
    datasets.create(namespace=team, name="old", owner=ada, created=AT, deleted_at=AT)
    made = {"dataset": ocr, "created": AT, "created_by": ada, "touched": AT}
    sealed = versions.create(
        **{**made, "number": 1, "state": "sealed", "format": "csv", "sealed": AT, "manifest": "manifests/1/1.json"},
        files_count=1,
        size=4,
        records=1,
    )
    filling = versions.create(**made, number=2, reserved=100)
    versions.create(**made, number=3, state="failed", why="No file could be read.", tries=3)
    blobs = model("datasets", "Blob").objects
    about = {"namespace": team, "sha256": CONTENT, "size": 4, "created": AT}
    blob = blobs.create(**about, key=f"blobs/1/{CONTENT}-1", home=ocr, kept=AT)
    blobs.create(**about, key=f"blobs/1/{CONTENT}-2", kept=AT, doomed=AT)
    files = model("datasets", "File").objects
    files.create(
        version=sealed,
        path="train/a.csv",
        folded="train/a.csv",
        size=4,
        part_size=4,
        sha256=CONTENT,
        blob=blob,
        format="csv",
        records=1,
        created=AT,
    )
    files.create(
        version=sealed,
        path="notes.txt",
        folded="notes.txt",
        size=4,
        part_size=4,
        sha256=CONTENT,
        blob=blob,
        unread="beside",
        created=AT,
    )
    half = files.create(version=filling, path="b.csv", folded="b.csv", size=8, part_size=4, created=AT)
    model("datasets", "Part").objects.create(file=half, number=0, checksum="e" * 64)
    for namespace in (people["other"], people["gone"]):
        model("datasets", "Share").objects.create(dataset=ocr, namespace=namespace)
    return {"sealed": sealed}


def _quota(model: Any, people: Mapping[str, Any]) -> None:
    team, ada = people["team"], people["ada"]
    model("quota", "Limit").objects.create(namespace=team, resource="cpu", amount=None, borrow=2)
    model("quota", "Limit").objects.create(namespace=team, resource="cpu_hours", amount=1000)
    model("quota", "Capacity").objects.create(resource="cpu", amount=64)
    claims = model("quota", "Claim").objects
    # Half an hour after one another: their head starts change their order.
    for number, priority in enumerate(("low", "normal", "high", "unheard-of")):
        claims.create(
            namespace=team,
            job=uuid.UUID(int=100 + number),
            attempt=1,
            label=priority,
            owner=ada,
            amounts={"cpu": 1},
            priority=priority,
            since=AT + number * HOUR / 2,
            length=60.0,
        )
    reservations, stretches = model("quota", "Reservation").objects, model("quota", "Stretch").objects
    held = reservations.create(
        namespace=team,
        job=RUNNING,
        attempt=1,
        label="digits",
        owner=ada,
        created=AT,
        amounts={"cpu": 2, "gpu": 1},
        until=AT + DAY,
        recalled=AT,
        recalled_why="It was lent.",
    )
    stretches.create(reservation=held, amounts={"cpu": 4, "gpu": 1}, begun=AT, ended=AT + 6 * HOUR)
    stretches.create(reservation=held, amounts={"cpu": 2, "gpu": 1}, begun=AT + 6 * HOUR)
    over = reservations.create(
        namespace=team, job=uuid.UUID(int=7), attempt=1, amounts={"memory": 1}, created=AT - 30 * DAY, released=AT
    )
    # A month before, without cores, of no length, with an end before the beginning, and by a clock that was behind.
    for amounts, begun, ended in (
        ({"cpu": 1.5}, AT - 30 * DAY, AT - 29 * DAY),
        ({"memory": 1}, AT, AT + HOUR),
        ({"cpu": 1}, AT, AT),
        ({"cpu": 1}, AT, AT - HOUR),
    ):
        stretches.create(reservation=over, amounts=amounts, begun=begun, ended=ended)
    requests = model("quota", "QuotaRequest").objects
    requests.create(namespace=team, asker=ada, asked=AT, limits={"cpu": 8}, reason="A deadline.")
    requests.create(
        namespace=team,
        asker=ada,
        asked=AT,
        limits={"cpu": 9},
        reason="Before.",
        answered=AT,
        state="refused",
        answered_by=ada,
        answer="No.",
    )
    model("quota", "Kept").objects.create(
        namespace=team, kind="artifacts", subject=str(RUNNING), label="digits", size=40, changed=AT
    )
    model("quota", "Stored").objects.create(namespace=team, kind="artifacts", size=40)


def _jobs(model: Any, people: Mapping[str, Any], versions: Mapping[str, Any]) -> None:
    snapshot = model("jobs", "CodeSnapshot").objects.create(digest=CODE_DIGEST, size=10)
    by_state = {}
    for number, state in enumerate(STATES, 1):
        by_state[state] = job = model("jobs", "Job").objects.create(
            id=uuid.UUID(int=number),
            namespace=people["team"],
            owner=people["ada"],
            name=state.lower(),
            spec=SPEC,
            snapshot=snapshot,
            state=state,
            created=AT + number * HOUR,
            changed=AT,
            why=f"{state} for a reason" if number % 2 else "",
            finished=AT + DAY if number > 7 else None,
            idempotency_key=f"key-{number}" if number % 2 else None,
        )
        model("jobs", "Transition").objects.create(job=job, attempt=1, at=AT, state="QUEUED", actor=people["ada"])
        if state != "QUEUED":
            model("jobs", "Transition").objects.create(
                job=job, attempt=1, at=AT + HOUR, old="QUEUED", state=state, reason="completed", why="It went on."
            )
    running = by_state["RUNNING"]
    model("jobs", "Job").objects.filter(pk=running.pk).update(
        started=AT,
        trainers=3,
        pservers=2,
        elastic=False,
        rehearsal=REHEARSAL,
        revision=7,
        requeues={"lost": 1},
        dataset_version=versions["sealed"],
        reason="",
    )
    model("jobs", "Job").objects.filter(state="CANCELLED").update(cancel_requested=AT, cancelled_by=people["bob"])
    attempts = model("jobs", "Attempt").objects
    attempts.create(job=by_state["FAILED"], number=1, token_digest="a" * 64, created=AT, finished=AT + HOUR)
    attempt = attempts.create(job=running, number=1, token_digest=digest(TOKEN), created=AT)
    replicas = model("jobs", "Replica").objects
    replicas.create(
        attempt=attempt,
        name="trainer-0",
        role="trainer",
        index=0,
        state="registered",
        heartbeat=AT,
        life=2,
        restarts=1,
        started=AT,
        registered=AT,
    )
    replicas.create(
        attempt=attempt,
        name="t" * 63,
        role="trainer",
        index=1,
        state="exited",
        code=137,
        signal=9,
        out_of_memory=True,
        rehearsed=True,
        dismissed=True,
        flushed=True,
        finished=AT,
    )
    happenings = model("jobs", "JobEvent").objects
    # One is of the job itself; they arrived in another order than they occurred.
    for minutes, replica, text in ((30, "trainer-0", "The second."), (10, "", "The first."), (90, "t" * 63, "Last.")):
        moment = AT + timedelta(minutes=minutes)
        happenings.create(job=running, attempt=1, at=moment, replica=replica, kind="registered", text=text)
    model("jobs", "Scaling").objects.create(job=running, attempt=1, at=AT, before=2, after=3, automatic=True)
    decisions = {str(RUNNING): {"trainers": 3, "why": "It learns faster with three."}}
    model("jobs", "Elastic").objects.create(
        mode="explain", holder="one", term=5, until=AT, told=decisions, decided=AT, cores=16.0
    )
    neighbours = model("jobs", "Neighbour").objects
    neighbours.create(key="web/shop", cores=2.5, begun=AT)
    neighbours.create(cores=1.0, begun=AT, ended=AT + HOUR)
    model("jobs", "Artifact").objects.create(
        job=running,
        attempt=1,
        replica="trainer-0",
        name="model.npz",
        size=40,
        sha256="b" * 64,
        key="artifacts/6/1/x",
        created=AT,
    )
    for kind, last, payload in (("logs", 3, _LINES), ("metrics", 2, _POINTS)):
        model("jobs", "StreamHead").objects.create(job=running, kind=kind, last=last, unsealed=1)
        model("jobs", "Source").objects.create(attempt=attempt, replica="trainer-0", kind=kind, last=last)
        block = {"lo": 1, "hi": last, "payload": base64.b64decode(payload)}
        model("jobs", "Block").objects.create(job=running, kind=kind, **block)
    model("jobs", "FollowedLog").objects.create(attempt=attempt, replica="trainer-0", revision=4, taken=TAKEN)
