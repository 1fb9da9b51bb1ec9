"""A database of an earlier version of the portal (``older_rows``) after its migrations.

Each test reads some of its rows with the current code. ``test_postgres`` runs this file on PostgreSQL too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

from datasets import selectors as datasets
from jobs.elastic.controller import leader_lease
from jobs.log_follower.ingest import followed
from jobs.models import Attempt, Elastic, Job, Neighbour
from jobs.selectors import elastic_jobs, jobs, timeline
from jobs.streams import rollups, store
from quota import hours, ledger
from quota import selectors as quota
from quota.models import Claim, DailyUse, Reservation
from rbac import namespace_names
from rbac.audit import queries as audit_queries
from rbac.models import AuditEntry, Membership, Namespace, Session, User
from rbac.scopes import Scope
from rbac.sign_in import cli_authorization, second_factor
from tests.factories import make_namespace, make_user
from tests.portal.database import older_rows
from tests.portal.database.older_rows import AT, DAY, HOUR, LEAVES, RUNNING, STATES

APPS = [app for app, _ in LEAVES]
# Tables that the migrations change, each with a test of its own.
CHANGED = {"rbac.user": {"username"}, "rbac.session": {"session_key"}}
Rows = dict[Any, dict[str, Any]]


class Databases:
    """Additional test databases; one of them at a time is the default one."""

    def __init__(self, folder: Path) -> None:
        self._home, self._folder = str(connection.settings_dict["NAME"]), folder
        self._made: list[str] = []

    def create(self, name: str, like: str = "") -> None:
        """Make a database, empty or as a copy of another one, and use it."""
        self._switch(self._home)
        if connection.vendor == "sqlite":
            if like:
                shutil.copyfile(self._folder / like, self._folder / name)
        else:
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE DATABASE {name} TEMPLATE {like or 'template1'}")
        self._made.append(name)
        self.use(name)

    def use(self, name: str) -> None:
        self._switch(str(self._folder / name) if connection.vendor == "sqlite" else name)

    def drop(self) -> None:
        """Return to the database of the tests; the others are removed."""
        self._switch(self._home)
        for name in self._made if connection.vendor == "postgresql" else ():
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {name}")

    def _switch(self, name: str) -> None:
        connection.close()
        connection.settings_dict["NAME"] = name


@pytest.fixture(scope="module")
def databases(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: Any) -> Iterator[Databases]:
    """Yield the databases; ``older`` is the one before its migrations."""
    with django_db_blocker.unblock():
        made = Databases(tmp_path_factory.mktemp("databases"))
        try:
            made.create("older")
            MigrationExecutor(connection).migrate(_targets())
            older_rows.insert(_older_models())
            yield made
        finally:
            made.drop()


def _targets() -> list[tuple[str, str]]:
    leaves = MigrationExecutor(connection).loader.graph.leaf_nodes()
    return [*LEAVES, *(leaf for leaf in leaves if leaf[0] not in APPS)]


def _older_models() -> Any:
    return MigrationExecutor(connection).loader.project_state(_targets()).apps


@pytest.fixture(scope="module")
def before(databases: Databases) -> Mapping[str, Rows]:
    """Return all rows of the older database, by table and primary key."""
    databases.use("older")
    models = _older_models()
    return {
        model._meta.label_lower: {row["pk"]: row for row in model.objects.values(*_columns(model))}
        for app in APPS
        for model in models.get_app_config(app).get_models()
    }


def _columns(model: Any) -> list[str]:
    return ["pk", *(field.attname for field in model._meta.concrete_fields)]


@pytest.fixture(scope="module")
def _now(databases: Databases, before: Mapping[str, Rows]) -> None:
    databases.create("now", like="older")
    with pytest.MonkeyPatch.context() as patch:
        # Fewer than there are accounts.
        patch.setattr(import_module("rbac.migrations.0006_names_sessions_and_email"), "_CHUNK", 3)
        call_command("migrate", verbosity=0)


@pytest.fixture
def now(databases: Databases, _now: None) -> Iterator[None]:
    """The older database after its migrations. Changes of a test are rolled back."""
    databases.use("now")
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture
def another(databases: Databases, request: pytest.FixtureRequest) -> None:
    """A copy of the older database for this test alone."""
    databases.create(request.node.name[:63], like="older")


def of(username: str) -> User:
    return User.objects.get(username=username)


# --- All tables ------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("now")
def test_no_table_of_the_older_version_is_without_a_row_here(before: Mapping[str, Rows]) -> None:
    assert [name for name, rows in before.items() if not rows] == []


@pytest.mark.usefixtures("now")
def test_no_row_and_no_value_is_lost(before: Mapping[str, Rows]) -> None:
    lost = []
    for name, rows in before.items():
        model = apps.get_model(name)
        after = {row["pk"]: row for row in model._default_manager.values(*_columns(model))}
        same = set(_columns(model)) - CHANGED.get(name, set()) - ({"pk"} if name == "rbac.session" else set())
        found = list(after.values()) if name == "rbac.session" else [after.get(pk, {}) for pk in rows]
        for row, now in zip(_in_order(rows.values()), _in_order(found), strict=True):
            lost += [(name, key, row[key], now.get(key)) for key in same & set(row) if now.get(key) != row[key]]
    assert lost == []


def _in_order(rows: Any) -> list[dict[str, Any]]:
    """Compare by the handle, if there is one: the migrations change the key of a session."""
    return sorted(rows, key=lambda row: row.get("handle", ""))


# --- Accounts --------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("now")
def test_sessions_stay_valid() -> None:
    assert Client(headers={"cookie": f"regatta-session={older_rows.SESSION}"}).get("/tokens").status_code == 200


@pytest.mark.usefixtures("now")
def test_no_key_of_a_session_is_stored() -> None:
    keys = {older_rows.digest(key) for key in (older_rows.SESSION, older_rows.ANONYMOUS)}
    assert set(Session.objects.values_list("session_key", flat=True)) == keys


@pytest.mark.usefixtures("now")
def test_a_password_is_still_right() -> None:
    assert of("Car\u00f6l").check_password(older_rows.PASSWORD)


@pytest.mark.usefixtures("now")
def test_tokens_keep_their_scopes() -> None:
    client = Client(headers={"authorization": f"Bearer {older_rows.TOKEN}"})
    assert [one["name"] for one in client.get("/api/v1/namespaces").json()["results"]] == ["team"]
    assert client.get(f"/api/v1/jobs/{RUNNING}").status_code in (403, 404)


@pytest.mark.usefixtures("now")
def test_a_command_that_was_granted_a_token_fetches_it() -> None:
    token, _ = cli_authorization.exchange(code=older_rows.CODE, verifier=older_rows.VERIFIER, now=datetime.now(UTC))
    assert token.user == of("bob")


@pytest.mark.usefixtures("now")
def test_a_recovery_code_is_good_once_more() -> None:
    second_factor.verify(of("bob"), older_rows.RECOVERY)


@pytest.mark.usefixtures("now")
def test_roles_are_as_they_were() -> None:
    roles = Membership.objects.filter(namespace__name="team").order_by("user").values_list("user__username", "role")
    assert list(roles) == [("ada", "owner"), ("bob", "viewer"), ("team/robot", "developer")]


@pytest.mark.usefixtures("now")
def test_an_account_without_a_letter_in_its_name_is_renamed_and_the_audit_log_records_it() -> None:
    entry = AuditEntry.objects.get(action="user.rename", target=older_rows.DOTS)
    assert entry.after is not None
    renamed = of(entry.after["username"])
    assert (renamed.username, renamed.skeleton) == (f"member-{renamed.pk}", f"member-{renamed.pk}")
    assert not User.objects.filter(username=older_rows.DOTS).exists()


@pytest.mark.usefixtures("now")
def test_every_account_has_the_skeleton_of_its_name() -> None:
    assert {user.username: user.skeleton for user in User.objects.all()} == {
        user.username: namespace_names.skeleton(user.username) for user in User.objects.all()
    }


@pytest.mark.usefixtures("now")
def test_the_audit_log_shows_earlier_rows() -> None:
    actions = [entry.action for entry in audit_queries.entries({"until": date.max.isoformat()})]
    assert sorted(actions) == ["job.cancel", "quota.set", "sign-in", "user.rename"]


@pytest.mark.usefixtures("now")
@pytest.mark.parametrize("change", ["UPDATE rbac_auditentry SET reason = ''", "DELETE FROM rbac_auditentry"])
def test_the_audit_log_is_still_not_changed(change: str) -> None:
    with pytest.raises(DatabaseError, match="append-only"), connection.cursor() as cursor:
        cursor.execute(change)


# --- Datasets --------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("now")
def test_a_shared_dataset_stays_readable() -> None:
    assert {one.full_name for one in datasets.listed(of("Car\u00f6l"))} == {"team/ocr", f"{'o' * 63}/open"}


@pytest.mark.usefixtures("now")
def test_shares_name_their_namespaces_also_a_closed_one() -> None:
    shares = datasets.dataset_for(of("ada"), "team", "ocr").shares.values_list("name", "namespace__name")
    assert sorted(shares) == [("gone", "gone"), ("o" * 63, "o" * 63)]


@pytest.mark.usefixtures("now")
def test_a_version_has_its_files_and_what_was_found_of_them() -> None:
    version = datasets.version_for(of("ada"), "team", "ocr", 1)
    found = version.files.order_by("path").values_list("path", "format", "unread", "blob__sha256")
    content = older_rows.CONTENT
    assert list(found) == [("notes.txt", "", "beside", content), ("train/a.csv", "csv", "", content)]


@pytest.mark.usefixtures("now")
def test_an_unfinished_upload_has_its_part() -> None:
    version = datasets.version_for(of("ada"), "team", "ocr", 2, Scope.DATASET_WRITE)
    assert list(version.files.values_list("path", "parts__number")) == [("b.csv", 0)]


# --- Quotas ----------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("now")
def test_hours_are_summed_up_by_day() -> None:
    sums = DailyUse.objects.order_by("day").values_list("day", "cpu_hours", "gpu_hours")
    assert [row for row in sums if row[1] or row[2]] == [
        (date(2026, 10, 11), pytest.approx(1.5 * HOURS_LEFT), 0),
        (date(2026, 10, 12), pytest.approx(1.5 * (24 - HOURS_LEFT)), 0),
        (date(2026, 11, 10), pytest.approx(4 * HOURS_LEFT), pytest.approx(HOURS_LEFT)),
        (date(2026, 11, 11), pytest.approx(4 * (6 - HOURS_LEFT)), pytest.approx(6 - HOURS_LEFT)),
    ]


# The day on which the stretches began.
HOURS_LEFT = (datetime(2026, 11, 11, tzinfo=UTC) - AT) / HOUR


@pytest.mark.usefixtures("now")
def test_the_hours_of_the_month_are_those_of_its_stretches() -> None:
    team, moment = Namespace.objects.get(name="team"), AT + 2 * DAY
    used = quota.added(quota.uses(hours.month_of(moment), moment, namespace=team))
    assert hours.used_this_month(team, moment) == pytest.approx(used)


@pytest.mark.usefixtures("now")
def test_hours_of_a_stretch_that_went_on_are_added_when_it_ends() -> None:
    ledger.release(job=RUNNING, attempt=1, now=AT + 9 * HOUR)
    used = DailyUse.objects.get(day=date(2026, 11, 11)).cpu_hours
    assert used == pytest.approx(4 * (6 - HOURS_LEFT) + 2 * 3)


@pytest.mark.usefixtures("now")
def test_the_queue_has_the_order_that_priorities_give_it() -> None:
    found = Claim.objects.order_by("turn").values_list("priority", "turn")
    assert list(found) == [
        ("high", AT + HOUR - 4 * HOUR),
        ("normal", AT + HOUR / 2 - HOUR),
        ("low", AT),
        ("unheard-of", AT + 1.5 * HOUR),
    ]


@pytest.mark.usefixtures("now")
def test_a_place_in_the_queue_equals_a_new_one() -> None:
    for claim in Claim.objects.all():
        ask = ledger.ReservationRequest(claim.job, 1, claim.amounts, priority=claim.priority)
        assert claim.turn == ledger._turn(ask, claim.since)


@pytest.mark.usefixtures("now")
def test_reservations_and_stored_artifacts_count() -> None:
    view = quota.quota_of(Namespace.objects.get(name="team"), now=AT)
    assert (view["reserved"]["cpu"], view["reserved"]["gpu"], view["kept"]["artifacts"]) == (2, 1, 40)
    assert (view["limits"]["cpu_hours"], view["borrow"]["cpu"]) == (1000, 2)


@pytest.mark.usefixtures("now")
def test_preempted_reservations_stay_preempted() -> None:
    assert quota.recalls() == {(RUNNING, 1)}
    assert Reservation.objects.get(job=RUNNING).recalled_why == "It was lent."


# --- Jobs ------------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("now")
@pytest.mark.parametrize("state", STATES)
def test_a_job_is_read_in_every_state(state: str) -> None:
    pk = Job.objects.get(name=state.lower()).pk
    shown = jobs.job_detail(jobs.job_for(of("ada"), pk, Scope.JOB_WRITE))
    assert (shown["state"], shown["spec"], shown["owner"]) == (state, older_rows.SPEC, "ada")


@pytest.mark.usefixtures("now")
def test_a_job_is_shown_with_its_replicas_and_desired_numbers() -> None:
    shown = jobs.job_json(jobs.job_for(of("ada"), RUNNING, Scope.JOB_READ))
    assert [replica["name"] for replica in shown["replicas"]] == ["trainer-0", "t" * 63]
    desired = (shown["trainers"], shown["pservers"], shown["elastic"], shown["rehearsal"])
    assert desired == (3, 2, False, older_rows.REHEARSAL)


@pytest.mark.usefixtures("now")
def test_the_timeline_has_the_events_in_their_order() -> None:
    entries = timeline.page_of(jobs.job_for(of("ada"), RUNNING, Scope.JOB_READ)).entries
    texts = [entry.get("text") or entry.get("state") for entry in entries]
    assert texts == ["QUEUED", "The first.", "The second.", "It went on.", "Last."]


@pytest.mark.usefixtures("now")
def test_a_log_is_read_and_goes_on_where_it_was() -> None:
    attempt = Attempt.objects.get(job=RUNNING)
    rows = [(1e9 + 3, "agent", "more")]
    store.append_logs(job_id=RUNNING, attempt=attempt, replica="trainer-0", first=4, lines=rows)
    lines = store.read_logs(RUNNING).lines
    texts = ["pass 1 begins", "a warning: \u4f60\u597d", "the end", "more"]
    assert [(line.seq, line.text) for line in lines] == list(enumerate(texts, 1))


@pytest.mark.usefixtures("now")
def test_metrics_are_drawn_and_go_on_where_they_were() -> None:
    attempt = Attempt.objects.get(job=RUNNING)
    rows = [(1e9 + 2, 3.0, "cost", 0.125)]
    store.append_metrics(job_id=RUNNING, attempt=attempt, replica="trainer-0", first=3, points=rows)
    rollups.forget()
    (series,) = rollups.buckets(RUNNING).to_json()["series"].values()
    assert series["last"] == [0.5, 0.25, 0.125]


@pytest.mark.usefixtures("now")
def test_a_followed_log_goes_on_where_it_was() -> None:
    found = followed(Attempt.objects.get(job=RUNNING), "trainer-0")
    assert (found.revision, found.taken.lines, found.taken.place.latest) == (4, 3, 5)


@pytest.mark.usefixtures("now")
def test_the_elastic_controller_keeps_its_mode() -> None:
    assert elastic_jobs.mode() == "explain"
    assert leader_lease.lead("another", AT + DAY) == leader_lease.Term("another", 6)
    assert Elastic.objects.get().decisions[str(RUNNING)]["trainers"] == 3


@pytest.mark.usefixtures("now")
def test_cores_of_services_on_the_cluster_are_counted_on() -> None:
    assert Neighbour.objects.get(ended=None).key == "web/shop"


@pytest.mark.usefixtures("now")
def test_files_of_a_job_are_listed() -> None:
    job = jobs.job_for(of("ada"), RUNNING, Scope.JOB_READ)
    assert [(file.name, file.size) for file in jobs.artifacts(job)] == [("model.npz", 40)]


# --- Conflicting rows ------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("another")
def test_a_share_with_a_name_that_no_namespace_has_stays_void() -> None:
    _migrate_to(("datasets", "0006_file_unread"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE datasets_share SET name = 'nobody' WHERE name = 'gone'")
    call_command("migrate", verbosity=0)
    make_namespace("nobody", owner=(stranger := make_user("stranger")))
    assert list(datasets.dataset_for(of("ada"), "team", "ocr").shares.filter(namespace=None)) != []
    assert {one.full_name for one in datasets.listed(stranger)} == {f"{'o' * 63}/open"}


def _migrate_to(*targets: tuple[str, str]) -> None:
    MigrationExecutor(connection).migrate(list(targets))


@pytest.mark.usefixtures("another")
def test_the_name_of_a_renamed_account_is_unique() -> None:
    users = _older_models().get_model("rbac", "User").objects
    dots = users.get(username=older_rows.DOTS).pk
    users.create(username=f"Member-{dots}", password="!")
    call_command("migrate", verbosity=0)
    assert User.objects.get(pk=dots).username == f"member-{dots}-2"


class _CutOffError(Exception):
    pass


@pytest.mark.usefixtures("another")
def test_each_migration_that_is_cut_off_leaves_nothing_and_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = MigrationExecutor(connection)
    apply = Migration.apply
    for each, _ in executor.migration_plan(executor.loader.graph.leaf_nodes()):
        key = (each.app_label, each.name)

        def and_fail(self: Migration, *given: Any, key: tuple[str, str] = key, **named: Any) -> Any:
            state = apply(self, *given, **named)
            if (self.app_label, self.name) == key:
                raise _CutOffError
            return state

        with monkeypatch.context() as patch, pytest.raises(_CutOffError):
            patch.setattr(Migration, "apply", and_fail)
            call_command("migrate", verbosity=0)
    call_command("migrate", verbosity=0)
    assert Client(headers={"cookie": f"regatta-session={older_rows.SESSION}"}).get("/tokens").status_code == 200
