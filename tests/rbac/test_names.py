from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from rbac import names

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
usernames = st.from_regex(r"[\w.@+-]{1,150}", fullmatch=True)


@given(usernames)
def test_every_account_gets_a_dns_label(username: str) -> None:
    assert DNS_LABEL.fullmatch(names.personal(username))


@given(usernames, usernames)
def test_two_accounts_never_share_a_name(one: str, other: str) -> None:
    assert one == other or names.personal(one) != names.personal(other)


def test_a_plain_name_is_kept() -> None:
    assert names.personal("alice") == "alice"


def test_names_that_differ_only_by_escaping_stay_apart() -> None:
    assert len({names.personal(name) for name in ("zoe.k", "zoe-k", "Zoe-k", "zoe_k", "zoé-k")}) == 5


@given(usernames)
def test_nobody_can_choose_a_marked_name(username: str) -> None:
    assert not names.is_free_choice(names.marked(username))


def test_names_of_the_platform_are_not_given_away() -> None:
    assert not names.is_free_choice("kube-system")
    assert names.personal("default") != "default"
