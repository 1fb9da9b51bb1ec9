"""Serializers of the HTTP API of jobs: the shapes of its requests and responses in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.lifecycle.states import JobState
from jobs.selectors import timeline
from jobs.spec.fields import json_schema
from runtime import contract


@extend_schema_field(json_schema())
class SpecField(serializers.DictField):
    """A job specification."""


class PauseOutput(serializers.Serializer[Any]):
    done = serializers.BooleanField(help_text="All programs stand. false: some have not reached their next step.")
    since = serializers.DateTimeField()
    by = serializers.CharField()


class HeldOutput(serializers.Serializer[Any]):
    exception = serializers.CharField(help_text="The type of the exception.")
    until = serializers.DateTimeField()


class ReplicaOutput(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="<role>-<index>")
    role = serializers.CharField()
    index = serializers.IntegerField()
    start_number = serializers.IntegerField(help_text="How often it was started in this attempt.")
    state = serializers.CharField(help_text="waiting, starting, registered, exited or lost")
    why = serializers.CharField()
    held = HeldOutput(allow_null=True, help_text="Its program is held at an exception; null: it is not.")
    code = serializers.IntegerField(allow_null=True)
    signal = serializers.IntegerField(allow_null=True)
    started = serializers.DateTimeField(allow_null=True)
    finished = serializers.DateTimeField(allow_null=True)


class JobOutput(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    namespace = serializers.CharField()
    owner = serializers.CharField()
    state = serializers.ChoiceField(choices=[(state, state) for state in JobState])
    reason = serializers.CharField(help_text="Why it stops or has ended, as a word for programs; else empty.")
    why = serializers.CharField(help_text="The same as a message for people.")
    attempt = serializers.IntegerField()
    created = serializers.DateTimeField()
    started = serializers.DateTimeField(allow_null=True)
    finished = serializers.DateTimeField(allow_null=True)
    cancel_requested = serializers.DateTimeField(allow_null=True)
    trainers = serializers.IntegerField(
        allow_null=True, help_text="The number of trainers last requested; null: as many as the specification says."
    )
    pservers = serializers.IntegerField(
        allow_null=True, help_text="The same of parameter servers, from the next attempt on."
    )
    elastic = serializers.BooleanField(
        help_text="The platform changes the number of trainers between their min and max."
    )
    sizing = serializers.CharField(
        required=False, help_text="Of one job: why an elastic one has the number of trainers that it has."
    )
    rehearsal = serializers.DictField(
        allow_null=True,
        help_text="While failure is rehearsed: kill (a role), every, by, last, done (how often).",
    )
    pause = PauseOutput(allow_null=True, help_text="The job is paused; null: it is not.")
    replicas = ReplicaOutput(many=True)
    spec = SpecField(help_text="The specification as it was resolved, without the files.")


class JobPageOutput(serializers.Serializer[Any]):
    results = JobOutput(many=True)
    next = serializers.CharField(allow_null=True)


class PreviewOutput(serializers.Serializer[Any]):
    verdict = serializers.ChoiceField(choices=["admitted", "queued", "refused"])
    reason = serializers.CharField()
    numbers = serializers.DictField(help_text="What is short, by resource.")
    plan = serializers.DictField(help_text="amounts asked of the quota, and the replicas that would be started")


class TimelineOutput(serializers.Serializer[Any]):
    events = serializers.ListField(child=serializers.DictField(), help_text="The oldest first.")
    older = serializers.CharField(allow_null=True, help_text="The `before` of the page of older ones; null: none.")


class TimelineQuery(serializers.Serializer[Any]):
    """The query of a page of a timeline."""

    before = serializers.CharField(required=False, default="", help_text="The `older` of the page after it.")
    limit = serializers.IntegerField(min_value=1, max_value=timeline.MOST, default=timeline.PAGE)


class ScaleInput(serializers.Serializer[Any]):
    trainer = serializers.IntegerField(
        required=False, help_text="How many trainers there shall be, within the role's min and max."
    )
    pserver = serializers.IntegerField(
        required=False, help_text="How many parameter servers the job's next attempt shall have."
    )
    elastic = serializers.BooleanField(
        required=False,
        help_text="Whether the platform chooses the number of trainers. A requested number switches that off.",
    )


class RehearseInput(serializers.Serializer[Any]):
    kill = serializers.ChoiceField(choices=contract.ROLES, allow_null=True, help_text="A role; null ends it.")
    every = serializers.CharField(required=False, help_text="A length of time from 1s to 1h, such as 10s.")


class ArtifactOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    size = serializers.IntegerField(help_text="bytes")
    sha256 = serializers.CharField()


class ArtifactsOutput(serializers.Serializer[Any]):
    artifacts = ArtifactOutput(many=True)
    next = serializers.CharField(allow_null=True, help_text="The `cursor` of the next page; null on the last.")


class FilesOutput(serializers.Serializer[Any]):
    files = serializers.DictField(child=serializers.CharField(), help_text="Path to text.")


class SpecOutput(serializers.Serializer[Any]):
    spec = SpecField(help_text="The whole specification with its files, ready to be changed and submitted.")


class ExampleOutput(serializers.Serializer[Any]):
    name = serializers.CharField()
    title = serializers.CharField()
    title_zh = serializers.CharField()
    description = serializers.CharField()
    description_zh = serializers.CharField()
    spec = SpecField()


class ExamplesOutput(serializers.Serializer[Any]):
    results = ExampleOutput(many=True)
    next = serializers.CharField(allow_null=True)
