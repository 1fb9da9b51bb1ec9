from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rbac import messages, namespace_names
from rbac.services import ensure_personal_namespace
from tests.factories import make_namespace, make_user
from tests.messages import mentions

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
usernames = st.from_regex(r"[\w.@+-]{1,150}", fullmatch=True)


@given(usernames)
def test_every_account_gets_a_dns_label(username: str) -> None:
    assert DNS_LABEL.fullmatch(namespace_names.personal(username))


@given(usernames, usernames)
def test_two_accounts_never_share_a_name(one: str, other: str) -> None:
    assert one == other or namespace_names.personal(one) != namespace_names.personal(other)


# Names that are equal after escaping: two random ones never would be.
alike = st.text("aA.-_@+é", min_size=1, max_size=6)


@given(alike, alike)
@example("a.b", "a-b")
@example("a.b@x", "a_b@x")
@example("A", "a")
@example("é", "e\u0301")
def test_two_accounts_whose_names_look_alike_never_share_one(one: str, other: str) -> None:
    for names_of in ({namespace_names.personal(name), namespace_names.marked(name)} for name in (one, other)):
        assert all(DNS_LABEL.fullmatch(name) for name in names_of)
    mine, theirs = ({namespace_names.personal(name), namespace_names.marked(name)} for name in (one, other))
    assert one == other or not mine & theirs


@pytest.mark.django_db
def test_accounts_whose_names_look_alike_get_separate_namespaces() -> None:
    usernames = [
        "a.b",
        "a-b",
        "a_b",
        "a+b",
        "a@b",
        "A.b",
        "á.b",
        "a.b.",
        "`id`",
        "../../x",
        "$(id)",
        "a|b",
        "-",
        "a---b",
    ]
    make_namespace("a-b")
    namespaces = [ensure_personal_namespace(make_user(username)) for username in usernames]
    assert len({namespace.name for namespace in namespaces}) == len(usernames)
    assert all(DNS_LABEL.fullmatch(namespace.name) for namespace in namespaces)
    assert [namespace.memberships.get().user.username for namespace in namespaces] == usernames


def test_a_plain_name_is_kept() -> None:
    assert namespace_names.personal("alice") == "alice"


def test_names_that_differ_only_by_escaping_stay_apart() -> None:
    assert len({namespace_names.personal(name) for name in ("zoe.k", "zoe-k", "Zoe-k", "zoe_k", "zoé-k")}) == 5


@given(usernames)
def test_nobody_can_choose_a_marked_name(username: str) -> None:
    assert not namespace_names.is_free_choice(namespace_names.marked(username))


def test_names_of_the_platform_are_not_given_away() -> None:
    assert not namespace_names.is_free_choice("kube-system")
    assert namespace_names.personal("default") != "default"


# --- Accounts --------------------------------------------------------------------------------------------------------
PEOPLE = ["alice", "a.b", "Zoe@lab", "x_1", "1", "\u738b\u5c0f\u660e", "\u738bwei", "\u0430\u043d\u043d\u0430"]


@pytest.mark.parametrize("name", PEOPLE)
def test_names_of_people_are_names_of_accounts(name: str) -> None:
    assert namespace_names.fault_of_account(name) == ""


@pytest.mark.parametrize("name", ["", ".", "..", "...", "-", "_", "@", "+", ".-_@+"])
def test_a_name_without_a_letter_or_digit_is_invalid(name: str) -> None:
    assert mentions(namespace_names.fault_of_account(name), messages.ACCOUNT_NAME_WITHOUT_LETTERS)


@pytest.mark.parametrize("name", ["alice.", ".alice", "alice-", "_alice", "alice@"])
def test_a_name_ends_with_what_is_seen(name: str) -> None:
    assert mentions(namespace_names.fault_of_account(name), messages.ACCOUNT_NAME_ENDS)


@pytest.mark.parametrize("name", ["\u0430lice", "ali\u0441e", "b\u03bfb", "\u738b\u0430"])
def test_a_name_mixes_no_scripts_that_look_alike(name: str) -> None:
    assert mentions(namespace_names.fault_of_account(name), messages.ACCOUNT_NAME_MIXES_SCRIPTS)


def test_digits_are_those_of_a_keyboard() -> None:
    assert mentions(namespace_names.fault_of_account("bob\u0661"), messages.ACCOUNT_NAME_DIGITS)


ALIKE = [("Alice", "alice"), ("\u0430\u0441\u0435", "ace"), ("\u00c9mile", "\u00e9mile"), ("\uff41ce", "ace")]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_names_that_look_alike_have_one_skeleton(one: str, other: str) -> None:
    assert namespace_names.skeleton(one) == namespace_names.skeleton(other)


@pytest.mark.parametrize(("one", "other"), [("alice", "alicia"), ("a.b", "ab"), ("user1", "user2")])
def test_names_that_differ_to_the_eye_have_two(one: str, other: str) -> None:
    assert namespace_names.skeleton(one) != namespace_names.skeleton(other)


def test_a_skeleton_is_cut_off_where_its_column_ends() -> None:
    assert len(namespace_names.skeleton("\ufdfa" * 150)) == namespace_names.SKELETON_LENGTH


@pytest.mark.parametrize("check", [namespace_names.is_label, namespace_names.is_free_choice])
@pytest.mark.parametrize("name", [".", "..", "...", "", "a/b", "-"])
def test_no_namespace_dataset_or_service_token_is_another_path(check: Callable[[str], bool], name: str) -> None:
    assert not check(name)
