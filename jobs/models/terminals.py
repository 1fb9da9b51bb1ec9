"""Recordings of terminals."""

from __future__ import annotations

import uuid

from django.db import models


class TerminalRecording(models.Model):
    """What one connection to a terminal has shown: asciicast 2, stored as ``parts`` files in the storage."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey("jobs.Job", on_delete=models.CASCADE, related_name="recordings")
    replica = models.CharField(max_length=63)
    person = models.CharField(max_length=150)
    started = models.DateTimeField()
    ended = models.DateTimeField(null=True, blank=True)
    parts = models.PositiveIntegerField(default=0)
    size = models.PositiveBigIntegerField(default=0)

    class Meta:
        indexes = [models.Index(fields=["job", "-started"])]
