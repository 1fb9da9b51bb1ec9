"""The one table of scopes."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbac.models import Role
from rbac.scopes import DESCRIPTIONS, OF_NAMESPACES, SCOPES_OF_ROLE, Scope, complete, roles_with, unknown

scopes = st.frozensets(st.sampled_from(list(Scope)))


def test_each_role_holds_what_the_smaller_one_holds() -> None:
    held = [SCOPES_OF_ROLE[role] for role in (Role.VIEWER, Role.DEVELOPER, Role.OWNER)]
    assert all(small < large for small, large in combinations(held, 2))


def test_every_scope_is_described_and_held_by_a_role_or_by_the_account() -> None:
    assert set(DESCRIPTIONS) == set(Scope)
    assert {scope for scope in Scope if roles_with(scope)} == set(OF_NAMESPACES)


@given(scopes)
def test_completing_adds_and_is_done_after_once(chosen: frozenset[Scope]) -> None:
    assert set(complete(chosen)) >= chosen
    assert complete(complete(chosen)) == complete(chosen)


@given(scopes, scopes)
def test_more_scopes_never_complete_to_less(few: frozenset[Scope], more: frozenset[Scope]) -> None:
    assert set(complete(few)) <= set(complete(few | more))


def test_completing_nothing_stays_nothing() -> None:
    assert complete([]) == []


@given(scopes)
def test_completing_brings_no_power_over_others(chosen: frozenset[Scope]) -> None:
    powers = {Scope.JOB_WRITE, Scope.JOB_EXEC, Scope.NAMESPACE_ADMIN, Scope.ACCOUNT_ADMIN, Scope.PLATFORM_ADMIN}
    assert set(complete(chosen)) & powers == chosen & powers


@pytest.mark.parametrize("name", ["job:*", "", "JOB:READ", "job:read "])
def test_what_is_no_scope_is_named(name: str) -> None:
    assert unknown([name, Scope.JOB_READ]) == [name]
