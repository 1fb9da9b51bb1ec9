"""Messages in the database: text, code and parameters in one column."""

from __future__ import annotations

import pytest
from django.db import connection

from jobs.models import Job
from portal.common.message_field import decoded, encoded
from runtime.messages import Message
from runtime.messages.composition import FULL_STOP, prefixed
from tests.factories import make_job

pytestmark = pytest.mark.django_db


def column(job: Job) -> str:
    """Return the content of the column ``why``, as the database holds it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT why FROM jobs_job WHERE name = %s", [job.name])
        return str(cursor.fetchone()[0])


def test_a_message_is_read_with_its_code_and_parameters() -> None:
    job = make_job()
    job.why = prefixed("train.csv", FULL_STOP(text="the row is empty"))
    job.save()
    why = Job.objects.get(pk=job.pk).why
    assert isinstance(why, Message)
    assert (why, why.code) == ("train.csv: the row is empty.", "text.prefixed")
    assert isinstance(text := why.params["text"], Message)
    assert (text.code, text.params) == ("text.full_stop", {"text": "the row is empty"})


def test_an_update_and_a_list_of_values_keep_the_code() -> None:
    job = make_job()
    Job.objects.filter(pk=job.pk).update(why=FULL_STOP(text="over"))
    [why] = Job.objects.filter(pk=job.pk).values_list("why", flat=True)
    assert isinstance(why, Message)
    assert Job.objects.filter(pk=job.pk, why=FULL_STOP(text="over")).exists()


def test_a_text_without_a_code_is_stored_as_it_is() -> None:
    job = make_job()
    Job.objects.filter(pk=job.pk).update(why="KeyError: 7")
    assert (column(job), Job.objects.get(pk=job.pk).why) == ("KeyError: 7", "KeyError: 7")


@pytest.mark.parametrize("text", ['{"code": "jobs.cancelled", "params": {}, "text": "x"}', '{"code": ', "{}", ""])
def test_a_text_that_looks_like_a_stored_message_stays_a_text(text: str) -> None:
    assert (decoded(encoded(text)), type(decoded(encoded(text)))) == (text, str)
