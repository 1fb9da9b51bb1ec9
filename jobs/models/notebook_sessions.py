"""Sessions of browsers with notebooks."""

from __future__ import annotations

from django.db import models

from jobs.models.notebooks import Notebook
from rbac.models import User


class NotebookSession(models.Model):
    """A browser's right to one notebook, on the origin of that notebook (``jobs.notebooks.sessions``).

    It begins with a ticket from the portal. ``digest`` is the SHA-256 of the ticket until that is used, and of the
    cookie from then on.
    """

    notebook = models.ForeignKey(Notebook, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    # The public name of the portal's session that it was opened from, and ends with.
    session = models.CharField(max_length=32)
    digest = models.CharField(max_length=64, unique=True)
    # Scheme and host of the portal, as the browser sees it.
    portal = models.CharField(max_length=300)
    created = models.DateTimeField(db_index=True)
    # When the ticket was used. Null before.
    opened = models.DateTimeField(null=True, blank=True)
