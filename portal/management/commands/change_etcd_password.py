"""``manage.py change_etcd_password``: a new password for the portal's account in etcd, read from standard input.

It needs no terminal and no etcdctl, whose password would be in a command. ``deploy/make_secrets.py --rotate`` prints
the commands around it.
"""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from jobs.launch import coordination_accounts
from runtime.coordination.base import CoordinationError


class Command(BaseCommand):
    help = "Change the password of the account in REGATTA_COORDINATION to the line on standard input. Idempotent."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        if "@" not in settings.COORDINATION:
            raise CommandError("REGATTA_COORDINATION has no account. Nothing was changed.")
        password = sys.stdin.readline().rstrip("\r\n")
        if not password:
            raise CommandError("Standard input has no password. Nothing was changed.")
        try:
            coordination_accounts.change_password(password)
        except CoordinationError as error:
            raise CommandError(str(error)) from None
        self.stdout.write("The password in etcd is changed. Now set it in REGATTA_COORDINATION and restart the portal.")
