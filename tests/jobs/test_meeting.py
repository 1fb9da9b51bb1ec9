"""Where an attempt's processes meet, as the settings say."""

from __future__ import annotations

import pytest

from jobs import meeting
from jobs.backends.base import AttemptRef, LaunchFailed
from runtime import contract
from runtime.coordination import connect
from runtime.coordination.base import AccessDenied
from runtime.coordination.etcd_address import EtcdAddress
from tests.etcd_server import EtcdServer, free_port

REF = AttemptRef("a-job", "an-attempt", 3)


def test_without_a_setting_it_is_left_to_the_backend(settings):
    settings.COORDINATION = ""
    assert meeting.arrange(REF) == ""
    meeting.clear(REF)


def test_an_etcd_that_is_away_fails_the_launch_so_that_it_is_tried_again(settings):
    settings.COORDINATION = f"etcd://127.0.0.1:{free_port()}"
    with pytest.raises(LaunchFailed, match="cannot be used") as failure:
        meeting.arrange(REF)
    assert failure.value.retryable


def test_what_cannot_be_removed_is_told_to_the_operator_and_fails_nothing(settings, caplog):
    settings.COORDINATION = f"etcd://127.0.0.1:{free_port()}"
    meeting.clear(REF)
    assert "What attempt 3 of job a-job has in etcd could not be removed. etcd at" in caplog.text


@pytest.mark.etcd
def test_a_wrong_password_fails_the_launch_for_good(settings, guarded: EtcdServer):
    settings.COORDINATION = f"etcd://root:wrong@{guarded.server}"
    with pytest.raises(LaunchFailed, match="does not take this user and password") as failure:
        meeting.arrange(REF)
    assert not failure.value.retryable


@pytest.mark.etcd
def test_a_second_launch_gets_the_same_account_and_it_ends_with_the_attempt(settings, guarded: EtcdServer):
    settings.COORDINATION = EtcdAddress((guarded.server,), "", "root", guarded.password).url
    given = meeting.arrange(REF)
    assert meeting.arrange(REF) == given
    assert "root" not in given
    store = connect(given)
    store.put(f"{contract.attempt_prefix('a-job', 3)}a", b"1")
    meeting.clear(REF)
    with pytest.raises(AccessDenied):
        store.get(f"{contract.attempt_prefix('a-job', 3)}a")
    store.close()
