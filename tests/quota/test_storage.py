"""Accounting of storage: checks before writes, counting, and repair after a crash."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.common.clock import now
from portal.common.errors import QuotaExceeded
from quota import messages, storage
from quota.models import Capacity, Kept, Kind, Limit, Stored
from quota.resources import in_bytes
from quota.selectors import bounds_of, kept_by_kind, overheld, quota_of
from quota.storage import StoredObject
from rbac.models import Namespace
from runtime.messages import paragraph
from tests.factories import make_namespace
from tests.messages import pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db
MIB, GIB = 1024**2, 1024**3


@pytest.fixture
def namespace(settings) -> Namespace:
    settings.DEFAULT_QUOTA = {"storage": 10 * GIB}
    return make_namespace("team")


def job(namespace: Namespace, kind: Kind = Kind.ARTIFACTS, subject: str = "j1", label: str = "digits") -> StoredObject:
    return StoredObject(namespace.pk, kind, subject, label)


def counted(namespace: Namespace) -> dict[str, int]:
    return {kind: size for kind, size in kept_by_kind(namespace).items() if size}


def test_what_is_taken_is_counted_by_kind_and_in_sum(namespace: Namespace) -> None:
    storage.take(namespace, job(namespace), 3 * GIB)
    storage.take(namespace, job(namespace), 1 * GIB)
    storage.add(job(namespace, Kind.STREAMS), GIB)
    quota = quota_of(namespace)
    assert (quota["used"]["storage"], quota["headroom"]["storage"]) == (5 * GIB, 5 * GIB)
    assert quota["kept"] == {
        "artifacts": 4 * GIB, "checkpoints": 0, "streams": GIB, "code": 0, "datasets": 0, "homes": 0,
    }  # fmt: skip


def test_what_does_not_fit_is_refused_with_what_is_used_by_what_and_what_to_delete(namespace: Namespace) -> None:
    storage.take(namespace, job(namespace, label="images"), 9 * GIB)
    storage.add(job(namespace, Kind.CODE, "c"), MIB)
    with pytest.raises(QuotaExceeded) as refused:
        storage.take(namespace, job(namespace, subject="j2"), 2 * GIB)
    assert str(refused.value) == paragraph(
        messages.NAMESPACE_STORAGE_FULL(needed="2 GiB", free="0.999 GiB", limit="10 GiB", namespace="team"),
        messages.ARTIFACTS_USE(amount="9 GiB"),
        messages.CODE_USES(amount="1 MiB"),
        messages.LARGEST_ARTIFACTS(name="images", amount="9 GiB"),
        messages.DELETE_OR_RAISE_LIMIT(),
    )
    assert refused.value.extra["numbers"]["storage"]["free"] == GIB - MIB
    assert counted(namespace) == {"artifacts": 9 * GIB, "code": MIB}


def test_what_fits_to_the_last_byte_is_taken_and_then_nothing_more(namespace: Namespace) -> None:
    storage.take(namespace, job(namespace), 10 * GIB)
    with pytest.raises(QuotaExceeded):
        storage.check(namespace, 0, bounds_of(namespace))


def test_without_a_limit_nothing_is_refused(namespace: Namespace, settings) -> None:
    settings.DEFAULT_QUOTA = {}
    storage.take(namespace, job(namespace), 10**15)


def test_the_platform_s_storage_is_shared(namespace: Namespace) -> None:
    Capacity.objects.create(resource="storage", amount=4 * GIB)
    storage.take(
        make_namespace("others"), StoredObject(Namespace.objects.get(name="others").pk, Kind.CODE, "c"), 3 * GIB
    )
    with pytest.raises(QuotaExceeded, match=pattern(messages.PLATFORM_STORAGE_FULL, free="1 GiB", limit="4 GiB")):
        storage.take(namespace, job(namespace), 2 * GIB)


def test_what_is_measured_replaces_what_was_counted_and_nothing_leaves_no_row(namespace: Namespace) -> None:
    for size in (5, 7, 0):
        storage.measured(job(namespace, Kind.CHECKPOINTS), size)
        assert sum(counted(namespace).values()) == size
    assert not Kept.objects.exists()


def test_what_is_forgotten_is_no_longer_counted(namespace: Namespace) -> None:
    storage.add(job(namespace), 5)
    storage.add(job(namespace, subject="j2"), 3)
    storage.forget(job(namespace))
    assert counted(namespace) == {"artifacts": 3}


def test_a_repair_counts_what_is_really_there(namespace: Namespace) -> None:
    for subject in ("gone", "grown", "right"):
        storage.add(job(namespace, subject=subject), 10)
    found = {
        job(namespace, subject="grown"): 25,
        job(namespace, subject="right"): 10,
        job(namespace, subject="unknown"): 4,
    }
    Stored.objects.update(size=999)
    assert storage.repair(Kind.ARTIFACTS, found, now() + timedelta(hours=2)) == 4
    assert counted(namespace) == {"artifacts": 39}
    assert dict(Kept.objects.values_list("subject", "size")) == {"grown": 25, "right": 10, "unknown": 4}


def test_a_repair_leaves_alone_what_was_taken_a_moment_ago(namespace: Namespace) -> None:
    """Its bytes may not be stored yet."""
    storage.take(namespace, job(namespace), 10)
    assert storage.repair(Kind.ARTIFACTS, {}, now()) == 0
    assert counted(namespace) == {"artifacts": 10}


def test_a_check_costs_the_same_however_many_things_are_stored(namespace: Namespace) -> None:
    def cost(things: int) -> int:
        for number in range(things):
            storage.add(job(namespace, subject=f"{things}-{number}"), 1)
        with CaptureQueriesContext(connection) as queries:
            storage.take(namespace, job(namespace, subject="j1"), 1)
        return len(queries)

    cost(1)
    assert cost(2) == cost(40)


def test_a_limit_below_the_stored_bytes_is_a_warning(namespace: Namespace) -> None:
    storage.add(job(namespace), 3 * GIB)
    Limit.objects.create(namespace=namespace, resource="storage", amount=GIB)
    assert overheld(namespace) == paragraph(
        messages.STORAGE_OVER_LIMIT(amount="3 GiB"), messages.STORAGE_CLOSED_TO_NEW_DATA()
    )


def test_the_quota_page_shows_what_uses_storage(personas: Personas, settings) -> None:
    settings.DEFAULT_QUOTA = {"storage": 10 * GIB}
    storage.add(StoredObject(personas.namespace.pk, Kind.CODE, "c" * 64, "digits"), 3 * MIB)
    storage.add(
        StoredObject(personas.namespace.pk, Kind.ARTIFACTS, "00000000-0000-4000-8000-000000000000", "images"), 5 * GIB
    )
    answer = personas.client("viewer").get("/n/team/quota")
    page = answer.content.decode()
    assert "5 GiB / 10 GiB" in page
    assert "3 MiB" in page
    assert [row.label for row in answer.context["largest"]] == ["images", "digits"]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 GiB"),
        (1, "1 B"),
        (500 * 1024, "500 KiB"),
        (50 * 1024, "50 KiB"),
        (5 * MIB, "5 MiB"),
        (GIB // 2, "0.5 GiB"),
        (GIB * 1.5, "1.5 GiB"),
        (2000 * GIB, "1.95 TiB"),
    ],
)
def test_bytes_are_formatted_in_readable_units(size: float, text: str) -> None:
    assert in_bytes(size) == text


def test_what_another_adds_between_read_and_write_is_counted(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is the last call before the row is written."""
    storage.add(job(namespace), 100)
    pending = [lambda: storage.add(job(namespace), 5)]

    def overtaken():  # type: ignore[no-untyped-def]
        while pending:
            pending.pop()()
        return now()

    monkeypatch.setattr(storage, "wall_clock", overtaken)
    storage.add(job(namespace), 10)
    assert Kept.objects.get().size == 115
    assert Stored.objects.get().size == 115
