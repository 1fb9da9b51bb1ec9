"""Admission policy: no over-commitment, no starvation, no cycles of recalls, and more capacity never hurts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota import policy
from quota.policy import Claim, Holding, NamespaceQuota, Obstacle, Outlook, Rules, State, outlook
from quota.resources import HELD

NOW = 1_000_000.0
AT_ONCE = Rules(shortest_run=0)

names = st.sampled_from(["a", "b", "c"])
some = st.fixed_dictionaries({}, optional={"cpu": st.integers(0, 12), "gpu": st.integers(0, 4)})
bounds = st.fixed_dictionaries(
    {}, optional={"cpu": st.none() | st.integers(0, 16), "gpu": st.none() | st.integers(0, 6)}
)


def namespace(name: str = "a", cpu: float | None = 10, **fields: Any) -> NamespaceQuota:
    return NamespaceQuota(name, {"cpu": cpu}, **fields)


def claim(key: str, cpu: float, since: float = 0, *, of: str = "a", **fields: Any) -> Claim:
    """``since``: seconds before now."""
    return Claim(key, of, {"cpu": cpu}, NOW - since, **fields)


def holding(key: str, cpu: float, left: float, *, of: str = "a", since: float = 5000, **fields: Any) -> Holding:
    """``left``: seconds until its timeout."""
    return Holding(key, of, {"cpu": cpu}, NOW - since, NOW + left, **fields)


def look(*things: NamespaceQuota | Claim | Holding, capacity: float | None = None, rules: Rules = Rules()) -> Outlook:  # noqa: B008
    namespaces = {thing.name: thing for thing in things if isinstance(thing, NamespaceQuota)} or {"a": namespace()}
    held = [thing for thing in things if isinstance(thing, Holding)]
    waiting = [thing for thing in things if isinstance(thing, Claim)]
    return outlook(State(namespaces, {"cpu": capacity}, held, waiting), NOW, rules)


@st.composite
def states(draw: st.DrawFn) -> State:
    namespaces = {name: NamespaceQuota(name, draw(bounds), draw(some)) for name in ("a", "b", "c")}
    waiting = [
        Claim(f"w{i}", draw(names), draw(some), NOW - draw(st.integers(0, 30_000)), draw(st.integers(1, 9000)),
              draw(st.sampled_from(["low", "normal", "high"])))
        for i in range(draw(st.integers(0, 12)))
    ]  # fmt: skip
    held = [
        Holding(f"h{i}", draw(names), draw(some), NOW - draw(st.integers(0, 5000)), NOW + draw(st.integers(-9, 5000)),
                recalled=draw(st.booleans()))
        for i in range(draw(st.integers(0, 6)))
    ]  # fmt: skip
    return State(namespaces, draw(bounds), held, waiting)


def summed(amounts: Iterable[Mapping[str, float]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for each in amounts:
        found.update(each)
    return found


# --- No over-commitment ----------------------------------------------------------------------------------------------
@given(states())
def test_what_is_granted_fits_into_its_namespace_and_into_the_platform(state: State) -> None:
    granted = [claim for claim in state.waiting if claim.key in set(outlook(state, NOW).granted)]
    for name, bound in ((name, state.capacity.get(name)) for name in HELD):
        asked = [claim for claim in granted if claim.amounts.get(name)]
        held = summed(each.amounts for each in (*state.held, *granted))[name]
        assert bound is None or not asked or held <= bound
    for one in state.namespaces.values():
        for name, limit in one.limits.items():
            held = summed(each.amounts for each in (*state.held, *granted) if each.namespace == one.name)[name]
            asked = [claim for claim in granted if claim.namespace == one.name and claim.amounts.get(name)]
            assert limit is None or not asked or held <= limit + one.borrow.get(name, 0)


@given(states())
def test_each_is_either_granted_or_waits_for_a_reason(state: State) -> None:
    found = outlook(state, NOW)
    assert sorted([*found.granted, *found.waiting]) == sorted(claim.key for claim in state.waiting)


@given(states())
def test_the_order_of_the_input_does_not_matter(state: State) -> None:
    mirrored = replace(state, held=state.held[::-1], waiting=state.waiting[::-1])
    assert outlook(mirrored, NOW) == outlook(state, NOW)


@st.composite
def crowds(draw: st.DrawFn) -> State:
    """Generate many claims for scarce capacity."""
    namespaces = {
        name: NamespaceQuota(name, {"cpu": draw(st.integers(4, 20))}, {"cpu": draw(st.integers(0, 4))})
        for name in "abc"
    }
    waiting = [
        Claim(f"w{i}", draw(names), {"cpu": draw(st.integers(2, 5))}, NOW - draw(st.integers(0, 30_000)))
        for i in range(draw(st.integers(6, 16)))
    ]
    held = [
        Holding(f"h{i}", draw(names), {"cpu": 2}, NOW - draw(st.integers(0, 5000)), NOW + draw(st.integers(1, 5000)))
        for i in range(draw(st.integers(0, 3)))
    ]
    return State(namespaces, {"cpu": draw(st.integers(6, 12))}, held, waiting)


@given(crowds())
def test_once_nothing_is_left_to_give_the_turns_change_nothing(state: State) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy._SchedulingCycle, "_is_exhausted", lambda decisions: False)
        in_turn = outlook(state, NOW)
    assert outlook(state, NOW) == in_turn


def test_tenths_of_a_core_add_up_exactly() -> None:
    claims = [claim(f"{i:02}", 0.1, since=100 - i) for i in range(11)]
    assert len(look(namespace(cpu=1.0), *claims).granted) == 10


def test_a_resource_that_is_not_requested_never_blocks_a_claim() -> None:
    state = State(
        {"a": NamespaceQuota("a", {"cpu": 2, "gpu": 0})}, {}, [Holding("h", "a", {"gpu": 3}, 0, NOW)], [claim("w", 1)]
    )
    assert outlook(state, NOW).granted == ("w",)


# --- More never hurts ------------------------------------------------------------------------------------------------
def granted_before_the_first_that_waits(state: State) -> int:
    found = set(outlook(state, NOW, Rules(depth=0)).granted)
    oldest_first = sorted(state.waiting, key=lambda each: (each.since, each.key))
    return next((place for place, each in enumerate(oldest_first) if each.key not in found), len(oldest_first))


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 900)), max_size=8),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 9),
)
def test_with_more_capacity_or_limit_as_many_start_at_least(asked: list, limit: int, capacity: int, more: int) -> None:
    claims = [claim(f"{place}", cpu, since) for place, (cpu, since) in enumerate(asked)]
    state = State({"a": namespace(cpu=limit)}, {"cpu": capacity}, (), claims)
    before = granted_before_the_first_that_waits(state)
    assert granted_before_the_first_that_waits(replace(state, capacity={"cpu": capacity + more})) >= before
    assert granted_before_the_first_that_waits(replace(state, namespaces={"a": namespace(cpu=limit + more)})) >= before


@given(states(), st.sampled_from(HELD), st.integers(1, 9))
def test_a_claim_that_would_start_alone_still_does_with_more_capacity(state: State, resource: str, more: int) -> None:
    for each in state.waiting[:1]:
        alone = replace(state, waiting=[each])
        if state.capacity.get(resource) is None or not outlook(alone, NOW).granted:
            continue
        larger = replace(alone, capacity={**state.capacity, resource: state.capacity[resource] + more})
        assert outlook(larger, NOW).granted


# --- The order -------------------------------------------------------------------------------------------------------
def test_the_older_goes_first() -> None:
    assert look(claim("young", 6, 10), claim("old", 6, 20)).granted == ("old",)


def test_a_priority_is_a_head_start_and_no_more() -> None:
    assert look(claim("late", 6, 10, priority="high"), claim("early", 6, 3000)).granted == ("late",)
    assert look(claim("late", 6, 10, priority="high"), claim("early", 6, 4 * 3600)).granted == ("early",)


def test_the_namespace_that_holds_least_goes_first() -> None:
    namespaces = namespace("a"), namespace("b")
    found = look(*namespaces, holding("h", 3, 500), claim("x", 4, 90), claim("y", 4, 10, of="b"), capacity=10)
    assert found.granted == ("y",)


def test_an_overdue_claim_goes_before_fair_shares() -> None:
    namespaces = namespace("a"), namespace("b")
    found = look(*namespaces, holding("h", 3, 500), claim("x", 4, 5 * 3600), claim("y", 4, 10, of="b"), capacity=10)
    assert found.granted == ("x",)


def test_two_namespaces_get_equal_shares() -> None:
    claims = [claim(f"{name}{i}", 1, 100 - i, of=name) for name in "ab" for i in range(9)]
    granted = look(namespace("a"), namespace("b"), *claims, capacity=10).granted
    assert Counter(str(key)[0] for key in granted) == {"a": 5, "b": 5}


# --- Back-filling ----------------------------------------------------------------------------------------------------
def test_a_short_one_slips_in_before_the_first_could_start_anyway() -> None:
    found = look(holding("h", 6, 1000), claim("big", 8, 50), claim("short", 2, 10, length=900))
    assert found.granted == ("short",)


def test_a_long_one_does_not() -> None:
    found = look(holding("h", 6, 1000), claim("big", 8, 50), claim("long", 4, 10, length=2000))
    assert (found.granted, found.waiting["long"].obstacle) == ((), Obstacle.TURN)


def test_a_long_one_may_take_what_the_first_leaves() -> None:
    found = look(holding("h", 6, 1000), claim("big", 8, 50), claim("long", 2, 10, length=2000))
    assert found.granted == ("long",)


@given(states())
def test_granted_claims_never_make_the_first_wait_longer(state: State) -> None:
    """In one namespace, the latest start of the first waiting claim holds after the granted claims have started."""
    rules = Rules(shortest_run=1e9)
    alone = replace(
        state,
        held=[each for each in state.held if each.namespace == "a"],
        waiting=[each for each in state.waiting if each.namespace == "a"],
    )
    found = outlook(alone, NOW, rules)
    first = next((waiting for waiting in found.waiting.values() if waiting.latest is not None), None)
    if first is None:
        return
    claims = {each.key: each for each in state.waiting}
    started = [
        Holding(c.key, c.namespace, c.amounts, NOW, NOW + c.length) for c in map(claims.__getitem__, found.granted)
    ]
    after = replace(alone, held=[*alone.held, *started], waiting=[first.claim])
    again = outlook(after, NOW, rules).waiting[first.claim.key]
    assert again.latest is not None
    assert again.latest <= first.latest


def test_the_first_waiting_claim_has_its_latest_start() -> None:
    found = look(holding("h", 6, 1000), holding("i", 1, 3000), claim("big", 8, 50))
    assert found.waiting["big"].latest == NOW + 1000


# --- No starvation ---------------------------------------------------------------------------------------------------
@pytest.mark.invariant("Every waiting job is admitted in the end, even if jobs of higher priority keep arriving.")
@pytest.mark.parametrize(("capacity", "limit"), [(None, 10), (10, 10), (10, 100)])
def test_a_stream_of_small_urgent_jobs_does_not_starve_a_big_one(capacity: float | None, limit: float) -> None:
    """Every five minutes two jobs of two hours arrive, in its own namespace and another, all of higher priority."""
    namespaces = {name: namespace(name, cpu=limit) for name in "ab"}
    big = Claim("big", "a", {"cpu": 10}, 0.0, 60.0, "low")
    waiting, held = [big], [Holding("first", "a", {"cpu": 1}, 0.0, 3600.0)]
    for arrival in range(10 * 12):
        now = arrival * 300.0
        waiting += [Claim(f"{name}{arrival}", name, {"cpu": 1}, now, 7200.0, "high") for name in "ab"]
        held = [each for each in held if each.until > now]
        granted = set(outlook(State(namespaces, {"cpu": capacity}, held, waiting), now).granted)
        if "big" in granted:
            return
        held += [Holding(c.key, c.namespace, c.amounts, now, now + c.length) for c in waiting if c.key in granted]
        waiting = [each for each in waiting if each.key not in granted]
    pytest.fail("The big job has not started in ten hours.")


# --- Borrowing -------------------------------------------------------------------------------------------------------
def test_idle_capacity_may_be_borrowed_as_far_as_that_is_allowed() -> None:
    found = look(namespace(cpu=4, borrow={"cpu": 4}), claim("x", 6, 20), claim("y", 6, 10), capacity=100)
    assert (found.granted, found.waiting["y"].obstacle) == (("x",), Obstacle.LIMIT)


def test_a_claim_within_the_limits_goes_before_one_that_borrows() -> None:
    namespaces = namespace("a", cpu=4, borrow={"cpu": 8}), namespace("b", cpu=8)
    assert look(*namespaces, claim("borrows", 8, 900), claim("own", 8, 1, of="b"), capacity=10).granted == ("own",)


def lent(**fields: Any) -> tuple[NamespaceQuota | Holding | Claim, ...]:
    """``a`` holds 12 of 16 cores with a limit of 4; ``b`` claims 8 cores with a limit of 10."""
    return (
        *(namespace("a", cpu=4, borrow={"cpu": 12}), namespace("b", cpu=10)),
        *(holding("old", 4, 9000, since=8000), holding("mid", 4, 9000, since=7000)),
        holding("new", 4, 9000, **{"since": 6000, **fields}),
        claim("own", 8, 5, of="b"),
    )


def test_lent_capacity_is_recalled_from_the_attempt_that_began_last() -> None:
    found = look(*lent(), capacity=16)
    assert set(found.recalled) == {"new"}
    assert found.waiting["own"].coming


def test_of_low_priority_first() -> None:
    things = [
        replace(each, priority="low") if isinstance(each, Holding) and each.key == "mid" else each for each in lent()
    ]
    assert set(look(*things, capacity=16).recalled) == {"mid"}


def test_nothing_is_recalled_that_began_a_moment_ago() -> None:
    assert set(look(*lent(since=100), capacity=16).recalled) == {"mid"}


def test_nothing_is_recalled_twice_nor_beside_a_pending_recall() -> None:
    found = look(*lent(recalled=True), capacity=16)
    assert not found.recalled
    assert found.waiting["own"].coming


def test_nothing_is_recalled_where_that_would_not_suffice() -> None:
    namespaces = namespace("a", cpu=4, borrow={"cpu": 4}), namespace("b", cpu=20), namespace("c", cpu=20)
    things = (*namespaces, holding("lent", 6, 900), holding("own", 10, 900, of="c"), claim("x", 12, of="b"))
    assert not look(*things, capacity=18).recalled


@pytest.mark.invariant("Capacity within the limits of a namespace is never recalled.")
def test_who_stays_within_the_limits_is_never_called_back() -> None:
    namespaces = namespace("a"), namespace("b")
    assert not look(*namespaces, holding("h", 10, 900), claim("x", 4, of="b"), capacity=10).recalled


def test_recalled_capacity_is_reserved_for_the_claim_that_it_was_recalled_for() -> None:
    found = look(*lent(), claim("other", 1, 90, of="a", length=10), capacity=16)
    assert found.waiting["other"].obstacle in (Obstacle.LIMIT, Obstacle.CAPACITY, Obstacle.TURN)


@pytest.mark.invariant("Recalls of borrowed capacity end: jobs do not displace each other in a circle.")
@given(
    st.lists(st.tuples(names, st.integers(1, 8)), min_size=1, max_size=10),
    st.fixed_dictionaries({name: st.tuples(st.integers(0, 8), st.integers(0, 10)) for name in "abc"}),
    st.integers(1, 16),
)
def test_calling_back_comes_to_an_end(jobs: list, shares: dict, capacity: int) -> None:
    """Jobs never end, and recalled ones wait again. The state soon stops changing."""
    namespaces = {name: namespace(name, cpu=limit, borrow={"cpu": more}) for name, (limit, more) in shares.items()}
    waiting = [Claim(str(i), name, {"cpu": cpu}, float(i), 1e9) for i, (name, cpu) in enumerate(jobs)]
    held: list[Holding] = []
    for turn in range(4 * len(jobs) + 4):
        found = outlook(State(namespaces, {"cpu": capacity}, held, waiting), 100.0 + turn, AT_ONCE)
        if not found.granted and not found.recalled:
            return
        back = [Claim(h.key, h.namespace, h.amounts, 100.0 + turn, 1e9) for h in held if h.key in found.recalled]
        held = [each for each in held if each.key not in found.recalled]
        held += [Holding(c.key, c.namespace, c.amounts, 100.0 + turn, 1e9) for c in waiting if c.key in found.granted]
        waiting = [each for each in waiting if each.key not in found.granted] + back
    pytest.fail("It goes on for ever.")


# --- Budgets ---------------------------------------------------------------------------------------------------------
def budgeted(spent: float) -> NamespaceQuota:
    return namespace(budgets={"cpu_hours": 10}, spent={"cpu_hours": spent})


@pytest.mark.parametrize(("spent", "obstacle"), [(2, None), (2.5, Obstacle.BUDGET)])
def test_an_attempt_starts_only_with_all_the_hours_that_it_can_use(spent: float, obstacle: Obstacle | None) -> None:
    found = look(budgeted(spent), claim("x", 4, length=7200))
    assert (found.waiting["x"].obstacle if found.waiting else None) == obstacle


def test_several_that_start_at_once_do_not_overdraw_it_together() -> None:
    assert len(look(budgeted(0), *(claim(str(i), 1, length=4 * 3600) for i in range(5))).granted) == 2


def test_what_the_budget_of_a_month_never_allows_is_reported_as_never() -> None:
    assert look(budgeted(9), claim("x", 4, length=3 * 3600)).waiting["x"].obstacle is Obstacle.NEVER


# --- Places ----------------------------------------------------------------------------------------------------------
def test_each_waiting_claim_has_the_number_of_claims_before_it() -> None:
    found = look(*(claim(str(i), 8, 100 - i) for i in range(5)), rules=Rules(depth=2))
    assert found.granted == ("0",)
    assert [found.waiting[str(i)].before for i in range(1, 5)] == [0, 1, 2, 3]
    assert found.waiting["4"].obstacle is Obstacle.BEHIND


# --- The place of the first waiting claim ----------------------------------------------------------------------------
@st.composite
def crowded_namespaces(draw: st.DrawFn) -> State:
    """Generate one namespace with claims of any length for more than its capacity."""
    waiting = [
        Claim(f"w{i}", "a", {"cpu": draw(st.integers(1, 5))}, NOW - i, draw(st.sampled_from([100, 2000, 9000])))
        for i in range(draw(st.integers(2, 10)))
    ]
    held = [
        Holding(f"h{i}", "a", {"cpu": draw(st.integers(1, 4))}, NOW, NOW + draw(st.integers(1, 5000)))
        for i in range(draw(st.integers(1, 4)))
    ]
    namespaces = {"a": NamespaceQuota("a", {"cpu": draw(st.none() | st.integers(6, 14))})}
    return State(namespaces, {"cpu": draw(st.integers(6, 12))}, held, waiting)


@given(crowded_namespaces())
def test_a_claim_granted_beside_a_place_leaves_its_latest_start_possible(state: State) -> None:
    found = outlook(state, NOW)
    for waiting in found.waiting.values():
        if waiting.latest is None:
            continue
        still = [one for one in state.held if one.until > waiting.latest]
        new = [one for one in state.waiting if one.key in found.granted and NOW + one.length > waiting.latest]
        held = sum(one.amounts["cpu"] for one in (*still, *new)) + waiting.claim.amounts["cpu"]
        limit = state.namespaces["a"].limits["cpu"]
        assert limit is None or held <= limit
        assert waiting.obstacle is not Obstacle.CAPACITY or held <= (state.capacity["cpu"] or 0)


def test_back_filled_long_claims_do_not_add_up_to_what_the_first_waits_for() -> None:
    """Capacity for one long claim beside the place of the first, not for two."""
    found = look(
        namespace(cpu=None),
        holding("h", 6, left=1000),
        claim("first", 8, 300),
        claim("x", 2, 200, length=5000),
        claim("y", 2, 100, length=5000),
        capacity=10,
    )
    assert found.granted == ("x",)
    assert found.waiting["y"].obstacle is Obstacle.TURN
    assert found.waiting["first"].latest == NOW + 1000


def test_back_filled_long_claims_do_not_add_up_to_what_the_first_of_a_namespace_waits_for() -> None:
    found = look(
        namespace(cpu=10),
        holding("h", 6, left=1000),
        claim("first", 8, 300),
        claim("x", 2, 200, length=5000),
        claim("y", 2, 100, length=5000),
    )
    assert found.granted == ("x",)
    assert found.waiting["first"].obstacle is Obstacle.LIMIT
    assert found.waiting["y"].obstacle is Obstacle.TURN


def test_an_overdue_claim_goes_before_the_namespace_that_holds_less() -> None:
    rules = Rules(patience=1000)
    claims = (claim("new", 4, 10, of="b"), claim("old", 4, 2000))
    namespaces = (namespace("a", None), namespace("b", None), holding("h", 4, left=5000))
    assert look(*namespaces, *claims, capacity=8, rules=rules).granted == ("old",)
    assert look(*namespaces, *claims, capacity=8, rules=Rules(patience=1e9)).granted == ("new",)
