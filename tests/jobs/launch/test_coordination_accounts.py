"""Accounts of attempts in the coordination store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jobs.backends.base import AttemptRef, LaunchFailed
from jobs.launch import coordination_accounts
from jobs.lifecycle.states import JobState
from jobs.messages import cluster as messages
from runtime import contract
from runtime.coordination import connect
from runtime.coordination.base import AccessDenied, StoreUnavailable
from runtime.coordination.etcd_address import EtcdAddress
from tests.factories import make_attempt, make_job
from tests.messages import pattern
from tests.ports import free_port
from tests.servers.etcd_server import EtcdServer

REF = AttemptRef("a-job", "an-attempt", 3)
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_without_a_setting_it_is_left_to_the_backend(settings):
    settings.COORDINATION = ""
    assert coordination_accounts.arrange(REF) == ""
    coordination_accounts.clear(REF)


def test_an_unavailable_etcd_fails_the_launch_with_a_retry(settings):
    settings.COORDINATION = f"etcd://127.0.0.1:{free_port()}"
    with pytest.raises(LaunchFailed, match=pattern(messages.COORDINATION_STORE_UNUSABLE)) as failure:
        coordination_accounts.arrange(REF)
    assert failure.value.retryable


def test_an_etcd_that_did_not_answer_is_not_waited_for_by_the_next_job(settings, monkeypatch):
    settings.COORDINATION = f"etcd://127.0.0.1:{free_port()}"
    requests = []

    def unanswered(*_):
        requests.append(1)
        raise StoreUnavailable("It did not answer.")

    monkeypatch.setattr("runtime.coordination.etcd_accounts.open_account", unanswered)
    for _ in range(3):
        with pytest.raises(LaunchFailed, match="It did not answer") as failure:
            coordination_accounts.arrange(REF)
        assert failure.value.retryable
    assert len(requests) == 1


def test_a_failed_removal_is_logged_and_raises_nothing(settings, caplog):
    settings.COORDINATION = f"etcd://127.0.0.1:{free_port()}"
    coordination_accounts.clear(REF)
    assert "What attempt 3 of job a-job has in etcd could not be removed. etcd at" in caplog.text


@pytest.mark.etcd
def test_a_wrong_password_fails_the_launch_without_a_retry(settings, guarded: EtcdServer):
    settings.COORDINATION = f"etcd://root:wrong@{guarded.server}"
    with pytest.raises(LaunchFailed, match="does not take this user and password") as failure:
        coordination_accounts.arrange(REF)
    assert not failure.value.retryable


@pytest.mark.etcd
def test_a_second_launch_gets_the_same_account_and_it_ends_with_the_attempt(settings, guarded: EtcdServer):
    settings.COORDINATION = EtcdAddress((guarded.server,), "", "root", guarded.password).url
    given = coordination_accounts.arrange(REF)
    assert coordination_accounts.arrange(REF) == given
    assert "root" not in given
    store = connect(given)
    store.put(f"{contract.attempt_prefix('a-job', 3)}a", b"1")
    coordination_accounts.clear(REF)
    with pytest.raises(AccessDenied):
        store.get(f"{contract.attempt_prefix('a-job', 3)}a")
    store.close()


@pytest.mark.etcd
def test_with_a_gateway_agents_get_its_address_with_the_same_keys(settings, guarded: EtcdServer):
    settings.COORDINATION = EtcdAddress((guarded.server,), "/site", "root", guarded.password).url
    settings.COORDINATION_JOBS = "etcd://coordination-gateway:2379"
    given = EtcdAddress.parse(coordination_accounts.arrange(REF))
    assert (given.servers, given.prefix, given.user) == (("coordination-gateway:2379",), "/site", "regatta-a-job-3")
    coordination_accounts.clear(REF)


@pytest.mark.django_db
def test_attempts_in_etcd_are_over_if_a_later_one_exists_or_the_job_has_ended():
    going, over = make_job(state=JobState.RUNNING, attempt=2), make_job(state=JobState.FAILED, attempt=1)
    for job, number in ((going, 1), (going, 2), (over, 1)):
        make_attempt(job, number)
    requests = [(str(going.pk), 1), (str(going.pk), 2), (str(over.pk), 1), ("of-another-portal", 1)]
    assert coordination_accounts.ended(requests) == sorted([(str(going.pk), 1), (str(over.pk), 1)])


def test_an_unavailable_etcd_is_cleaned_up_at_a_later_interval(settings, caplog):
    settings.COORDINATION = f"etcd://127.0.0.1:{free_port()}"
    keeping = coordination_accounts.AccountCleanup()
    for seconds in (0, 299):
        keeping.when_due(NOW + timedelta(seconds=seconds))
    assert caplog.text.count("could not be tidied up") == 1
    keeping.when_due(NOW + timedelta(seconds=300))
    assert caplog.text.count("could not be tidied up") == 2


@pytest.mark.etcd
@pytest.mark.django_db
def test_the_next_sweep_removes_the_account_of_an_ended_attempt(settings, guarded: EtcdServer):
    settings.COORDINATION = EtcdAddress((guarded.server,), "", "root", guarded.password).url
    job = make_job(state=JobState.SUCCEEDED, attempt=1)
    attempt = make_attempt(job, 1)
    given = coordination_accounts.arrange(AttemptRef(str(job.pk), str(attempt.pk), 1))
    coordination_accounts.AccountCleanup().when_due(NOW)
    store = connect(given)
    with pytest.raises(AccessDenied):
        store.get(f"{contract.attempt_prefix(str(job.pk), 1)}a")
    store.close()


@pytest.mark.etcd
@pytest.mark.django_db
def test_what_unknown_attempts_of_known_jobs_have_left_is_removed(settings, guarded: EtcdServer):
    settings.COORDINATION = EtcdAddress((guarded.server,), "/restored", "root", guarded.password).url
    job = make_job(attempt=1, state=JobState.RUNNING)
    known = make_attempt(job, 1)
    refs = [AttemptRef(str(job.pk), str(known.pk), 1), AttemptRef(str(job.pk), "later", 2), AttemptRef("other", "x", 1)]
    for ref in refs:
        coordination_accounts.arrange(ref)
    assert coordination_accounts.left_by_unknown_attempts() == [(str(job.pk), 2)]
    assert coordination_accounts.left_by_unknown_attempts() == []
    for ref in (refs[0], refs[2]):
        coordination_accounts.clear(ref)
