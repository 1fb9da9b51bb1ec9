"""Switching the elastic controller on and off."""

from __future__ import annotations

from django.db import transaction

from jobs.messages import jobs as messages
from jobs.models import Elastic, ElasticMode
from portal.common.errors import ValidationFailed
from portal.common.rows import ensure
from rbac.access import require_admin
from rbac.audit import log as audit_log
from rbac.models import User


@transaction.atomic
def switch(*, actor: User, mode: str, reason: str) -> None:
    """Set the mode of the elastic controller from now on. An empty ``mode`` selects the mode of the settings.

    Raises Forbidden if ``actor`` is no admin, and ValidationFailed if there is no such mode or no reason.
    """
    require_admin(actor)
    stated = audit_log.stated(reason)
    if mode not in ("", *ElasticMode.values):
        raise ValidationFailed({"mode": [messages.ELASTIC_MODE_UNKNOWN(names=", ".join(ElasticMode.values))]})
    ensure(Elastic, pk=1)
    row = Elastic.objects.select_for_update().get(pk=1)
    Elastic.objects.filter(pk=1).update(mode=mode)
    before, after = {"mode": row.mode or "settings"}, {"mode": mode or "settings"}
    audit_log.record("elastic.mode", "platform", actor=actor, before=before, after=after, reason=stated)
