"""A GET changes nothing: every route is read as a platform admin, and no statement that writes is sent."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.factories import make_job
from tests.jobs.api.test_authorisation import NONE
from tests.personas import Personas
from tests.portal.pages.test_csrf import addresses

pytestmark = pytest.mark.django_db
WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")
# The session itself: the CSRF token of a form, and when it was last used.
SESSION = 'UPDATE "rbac_session"'


def test_no_get_writes_to_the_database_but_to_its_session(personas: Personas) -> None:
    browser = Client()
    browser.force_login(personas.admin)
    browser.get("/")
    job = make_job(personas.namespace)
    written: dict[str, list[str]] = {}
    for path in addresses():
        with CaptureQueriesContext(connection) as queries:
            browser.get(path.replace(str(NONE), str(job.pk)))
        statements = [query["sql"] for query in queries if query["sql"].lstrip().upper().startswith(WRITES)]
        if found := [each for each in statements if not each.startswith(SESSION)]:
            written[path] = found
    assert written == {}
