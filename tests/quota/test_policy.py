from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quota.policy import HELD, decide, total

amounts = st.dictionaries(st.sampled_from(HELD), st.integers(0, 64))
limits = st.dictionaries(st.sampled_from(HELD), st.one_of(st.none(), st.integers(0, 64)))


@given(st.lists(amounts, max_size=20), limits)
def test_admitted_requests_never_exceed_a_limit_together(requests: list[dict], limits: dict) -> None:
    held: list[dict] = []
    for request in requests:
        if decide(request, limits, total(held)).admitted:
            held.append(request)
    assert all(limits.get(name) is None or total(held)[name] <= limits[name] for name in HELD)


@given(amounts, limits, amounts, st.sampled_from(HELD), st.integers(0, 64))
def test_more_room_never_refuses_what_less_room_admitted(
    request: dict, limits: dict, held: dict, resource: str, more: int
) -> None:
    if limits.get(resource) is None or not decide(request, limits, held).admitted:
        return
    assert decide(request, limits | {resource: limits[resource] + more}, held).admitted


@given(amounts, limits, amounts)
def test_never_means_not_even_when_nothing_else_runs(request: dict, limits: dict, held: dict) -> None:
    verdict = decide(request, limits, held)
    assert verdict.never == (not decide(request, limits, {}).admitted)


@given(amounts, limits, amounts)
def test_a_refusal_says_why_with_numbers_and_an_admission_needs_no_words(
    request: dict, limits: dict, held: dict
) -> None:
    verdict = decide(request, limits, held)
    assert verdict.admitted == (verdict.why == "") == (not verdict.numbers)


def test_a_request_that_has_to_wait_is_told_what_is_free_and_why() -> None:
    verdict = decide({"cpu": 3}, {"cpu": 16}, {"cpu": 14}, namespace="alice")
    assert verdict.why == "Needs 3 cpu; 2 of 16 are free in `alice`: 14 are held by running jobs."
    assert (verdict.admitted, verdict.never) == (False, False)


def test_a_request_that_can_never_fit_is_told_the_limit() -> None:
    verdict = decide({"memory": 32 * 1024**3}, {"memory": 16 * 1024**3}, {}, namespace="alice")
    assert verdict.never
    assert verdict.why.startswith("Needs 32 GiB of memory; the limit in `alice` is 16 GiB of memory")
    assert verdict.numbers["memory"]["limit"] == 16 * 1024**3


def test_what_is_not_asked_for_stands_in_nobodys_way() -> None:
    assert decide({"cpu": 1, "gpu": 0}, {"cpu": 2, "gpu": 0}, {"gpu": 3}).admitted


def test_tenths_of_a_core_add_up_exactly() -> None:
    assert decide({"cpu": 0.1}, {"cpu": 1.0}, total([{"cpu": 0.1}] * 9)).admitted
