from __future__ import annotations

import threading
import uuid
from datetime import timedelta
from itertools import count

import pytest
from django.db import connection

from portal.common.time import now
from quota import services
from quota.models import Reservation
from quota.selectors import quota_of, reserved_in
from rbac.models import Namespace
from tests.factories import make_namespace

THREADS = 32


@pytest.fixture
def namespace(db: None, settings) -> Namespace:
    settings.DEFAULT_QUOTA = {"cpu": 4, "jobs": 2}
    return make_namespace("team")


def test_a_second_call_for_an_attempt_holds_nothing_more(namespace: Namespace) -> None:
    job = uuid.uuid4()
    for _ in range(2):
        assert services.reserve(namespace=namespace, job=job, attempt=1, amounts={"cpu": 3}).admitted
    assert reserved_in(namespace)["cpu"] == 3


def test_what_does_not_fit_is_not_held(namespace: Namespace) -> None:
    verdict = services.reserve(namespace=namespace, job=uuid.uuid4(), attempt=1, amounts={"cpu": 5})
    assert verdict.never
    assert not Reservation.objects.exists()


def test_a_reservation_is_given_back_once(namespace: Namespace) -> None:
    job = uuid.uuid4()
    services.reserve(namespace=namespace, job=job, attempt=1, amounts={"cpu": 3})
    assert [services.release(job=job, attempt=1) for _ in range(2)] == [True, False]
    assert reserved_in(namespace)["cpu"] == 0


def test_what_was_given_back_can_be_held_by_another(namespace: Namespace) -> None:
    first, second = uuid.uuid4(), uuid.uuid4()
    services.reserve(namespace=namespace, job=first, attempt=1, amounts={"cpu": 4})
    assert not services.reserve(namespace=namespace, job=second, attempt=1, amounts={"cpu": 1}).admitted
    services.release(job=first, attempt=1)
    assert services.reserve(namespace=namespace, job=second, attempt=1, amounts={"cpu": 1}).admitted


def test_hours_are_those_of_the_reservations(namespace: Namespace) -> None:
    at = now()
    lived = Reservation.objects.create(namespace=namespace, job=uuid.uuid4(), attempt=1, amounts={"cpu": 2})
    lives = Reservation.objects.create(namespace=namespace, job=uuid.uuid4(), attempt=1, amounts={"cpu": 1, "gpu": 1})
    begun = at - timedelta(hours=3)
    Reservation.objects.filter(pk=lived.pk).update(created=begun, released=begun + timedelta(hours=1))
    Reservation.objects.filter(pk=lives.pk).update(created=begun)
    used = quota_of(namespace, now=at)["used"]
    assert (round(used["cpu_hours"], 6), round(used["gpu_hours"], 6)) == (5.0, 3.0)


@pytest.mark.django_db(transaction=True)
def test_many_at_once_never_over_commit(settings) -> None:
    settings.DEFAULT_QUOTA = {"cpu": 10}
    namespace = make_namespace("crowd")
    together = threading.Barrier(THREADS)
    admitted = count()

    def reserve() -> None:
        try:
            together.wait(timeout=30)
            if services.reserve(namespace=namespace, job=uuid.uuid4(), attempt=1, amounts={"cpu": 1}).admitted:
                next(admitted)
        finally:
            connection.close()

    threads = [threading.Thread(target=reserve) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (next(admitted), reserved_in(namespace)["cpu"]) == (10, 10)
