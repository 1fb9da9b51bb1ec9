"""Which version of which dataset a job's mention resolves to, and for whom."""

from __future__ import annotations

import pytest

from datasets import messages, selectors, services
from datasets.models import Dataset, Visibility
from datasets.selectors import Resolved
from portal.common.errors import NotFound
from rbac.models import Role
from rbac.scopes import Scope
from tests.datasets.filled import seal
from tests.factories import make_member
from tests.messages import pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db


def test_the_newest_sealed_version_is_resolved_unless_another_is_named(personas: Personas) -> None:
    first, second = seal(personas.developer), seal(personas.developer)
    services.begin_version(actor=personas.developer, ns="team", name="mine")
    assert selectors.resolve(personas.developer, "team", "team/mine") == Resolved("team/mine@2", second)
    assert selectors.resolve(personas.developer, "team", "team/mine@1") == Resolved("team/mine@1", first)


@pytest.mark.parametrize("mention", ["public/digits", "public/digits@1"])
def test_a_shipped_dataset_has_one_version(personas: Personas, mention: str) -> None:
    assert selectors.resolve(personas.developer, "team", mention) == Resolved("public/digits", None)


@pytest.mark.parametrize(
    ("mention", "why"),
    [
        ("team/mime", pattern(messages.DID_YOU_MEAN, name="team/mine")),
        (
            "team/mine@9",
            messages.NO_SEALED_VERSION_NUMBER(name="team/mine", number=9, advice=messages.NEWEST_VERSION(number=1)),
        ),
        ("public/digit", pattern(messages.DID_YOU_MEAN, name="public/digits or public/diabetes")),
        ("mine", "There is no dataset 'mine'"),
        ("../etc@1", pattern(messages.DATASET_NOT_FOUND_FOR_JOB)),
        ("team/mine@0", "There is no dataset 'team/mine@0'"),
    ],
)
def test_a_missing_dataset_is_an_error(personas: Personas, mention: str, why: str) -> None:
    seal(personas.developer)
    with pytest.raises(NotFound, match=why):
        selectors.resolve(personas.developer, "team", mention)


def test_a_dataset_without_a_sealed_version_is_an_error(personas: Personas) -> None:
    services.create_dataset(actor=personas.developer, namespace_name="team", name="mine")
    with pytest.raises(NotFound, match=pattern(messages.NO_SEALED_VERSION, advice=messages.FILL_AND_SEAL_FIRST())):
        selectors.resolve(personas.developer, "team", "team/mine")


def test_files_without_records_cannot_be_trained_on(personas: Personas) -> None:
    seal(personas.developer, files={"a.docx": b"x"})
    with pytest.raises(NotFound, match=pattern(messages.VERSION_UNREADABLE)):
        selectors.resolve(personas.developer, "team", "team/mine")


def test_deleted_datasets_and_versions_are_not_resolved(personas: Personas) -> None:
    seal(personas.developer)
    seal(personas.developer)
    services.delete_version(actor=personas.developer, ns="team", name="mine", number=2)
    assert selectors.resolve(personas.developer, "team", "team/mine").name == "team/mine@1"
    services.delete_dataset(actor=personas.developer, ns="team", name="mine")
    with pytest.raises(NotFound):
        selectors.resolve(personas.developer, "team", "team/mine")


def test_others_use_it_when_it_is_shared_with_the_namespace_of_the_job_or_public(personas: Personas) -> None:
    version = seal(personas.developer)
    with pytest.raises(
        NotFound, match=pattern(messages.DATASET_NOT_FOUND_FOR_JOB, name="'team/mine'", namespace="elsewhere")
    ):
        selectors.resolve(personas.stranger, "elsewhere", "team/mine")
    services.share_dataset(actor=personas.developer, ns="team", name="mine", namespaces=["elsewhere"])
    assert selectors.resolve(personas.stranger, "elsewhere", "team/mine").version == version
    services.share_dataset(actor=personas.developer, ns="team", name="mine", namespaces=[])
    Dataset.objects.update(visibility=Visibility.PUBLIC)
    assert selectors.resolve(personas.stranger, "elsewhere", "team/mine").version == version


def test_a_reader_cannot_show_it_to_a_namespace_without_access(personas: Personas) -> None:
    """Everyone who sees a job sees what it printed."""
    seal(personas.developer)
    namespace = personas.stranger.memberships.get(namespace__name="elsewhere").namespace
    make_member(namespace, personas.developer, Role.DEVELOPER)
    with pytest.raises(
        NotFound,
        match=pattern(messages.NOT_SHARED_WITH_NAMESPACE, name="team/mine", namespace="elsewhere", owner="team"),
    ):
        selectors.resolve(personas.developer, "elsewhere", "team/mine")


def test_a_form_offers_what_may_be_used(personas: Personas) -> None:
    seal(personas.developer, name="own")
    seal(personas.stranger, "elsewhere", "shared")
    seal(personas.stranger, "elsewhere", "private")
    services.create_dataset(actor=personas.developer, namespace_name="team", name="empty")
    services.share_dataset(actor=personas.stranger, ns="elsewhere", name="shared", namespaces=["team"])
    offered = [offer.name for offer in selectors.catalogue(personas.developer, "team")]
    assert offered == ["team/own", "elsewhere/shared", "public/diabetes", "public/digits"]


def test_an_open_version_is_not_resolved_by_its_number(personas: Personas) -> None:
    seal(personas.developer)
    services.begin_version(actor=personas.developer, ns="team", name="mine")
    with pytest.raises(NotFound, match=pattern(messages.NO_SEALED_VERSION_NUMBER, number=2)):
        selectors.resolve(personas.developer, "team", "team/mine@2")


def test_a_token_without_the_scope_reads_no_dataset_not_even_a_public_one(personas: Personas) -> None:
    version = seal(personas.developer)
    Dataset.objects.filter(pk=version.dataset_id).update(visibility=Visibility.PUBLIC)
    assert list(selectors.readable(personas.stranger)) == [version.dataset]
    personas.stranger.granted = frozenset({Scope.NAMESPACE_READ, Scope.JOB_READ})
    assert list(selectors.readable(personas.stranger)) == []
