"""Stacks of replicas: checked, bounded and grouped."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.control import stack_groups
from jobs.control.stack_groups import ReplicaStacks, StackFrame, StackThread, bounded, grouped, read

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["state", "note", "threads", "frames", "file", "line", "function", "id", "name", "native", "left_out",
         "stacks", "processes", "types", "type", "count"]), inner, max_size=6),
    max_leaves=30,
)  # fmt: skip
ANSWERS = st.dictionaries(
    st.sampled_from(["state", "note", "threads", "left_out", "stacks", "processes"]), JSON, max_size=6
)
HERE, THERE = StackFrame("train.py", 7, "step"), StackFrame("train.py", 9, "wait")


def stacks(replica: str, *frames: StackFrame, name: str = "MainThread") -> ReplicaStacks:
    return ReplicaStacks(replica, "running", "", (StackThread(1, name, False, 1, frames),))


# --- Groups ----------------------------------------------------------------------------------------------------------
def test_replicas_with_equal_stacks_are_one_group_and_the_largest_comes_first() -> None:
    groups = grouped([stacks("trainer-0", THERE), *(stacks(f"trainer-{index}", HERE) for index in (1, 2, 3))])
    assert [(group.frames, group.roles) for group in groups] == [((HERE,), {"trainer": 3}), ((THERE,), {"trainer": 1})]
    assert groups[0].members == (("trainer-1", "MainThread"), ("trainer-2", "MainThread"), ("trainer-3", "MainThread"))


def test_another_line_of_the_same_function_is_another_group() -> None:
    assert len(grouped([stacks("trainer-0", HERE), stacks("trainer-1", StackFrame("train.py", 8, "step"))])) == 2


def test_two_threads_of_one_replica_count_it_once() -> None:
    both = ReplicaStacks("pserver-0", "running", "", tuple(StackThread(i, "", False, 1, (HERE,)) for i in (1, 2)))
    (group,) = grouped([both])
    assert (len(group.members), group.roles) == (2, {"pserver": 1})


def test_threads_without_frames_are_in_no_group() -> None:
    assert grouped([stacks("trainer-0")]) == []


# --- Hostile answers -------------------------------------------------------------------------------------------------
@given(ANSWERS)
def test_any_answer_gives_stacks_that_can_be_sent(answer: dict[str, Any]) -> None:
    found = read("trainer-0", answer)
    assert found.state in stack_groups.STATES
    json.dumps([grouped([found]), stack_groups.read_folded(answer), stack_groups.read_memory(answer)], default=vars)


def test_control_characters_and_lone_surrogates_are_replaced() -> None:
    frame = {"file": "a\x1b[31m\ud800", "line": 1, "function": "f\nf"}
    (thread,) = read("trainer-0", {"threads": [{"frames": [frame]}]}).threads
    assert thread.frames == (StackFrame("a�[31m�", 1, "f�f"),)


@pytest.mark.parametrize("line", [-1, True, 2**60, "7", None, 1.5])
def test_a_line_that_is_no_number_of_one_is_unknown(line: object) -> None:
    (thread,) = read("trainer-0", {"threads": [{"frames": [{"line": line}]}]}).threads
    assert thread.frames[0].line == 0


def test_each_replica_has_an_equal_share_of_the_answer() -> None:
    flood = ReplicaStacks("trainer-0", "running", "", tuple(StackThread(i, "x" * 300, False) for i in range(100)))
    kept, small = bounded([flood, stacks("trainer-1", HERE)], characters=2000)
    assert (len(kept.threads), kept.left_out) == (2, 98)
    assert small.left_out == 0


def test_a_thread_beyond_the_limit_of_the_agent_is_dropped() -> None:
    assert len(read("trainer-0", {"threads": [{}] * 1000}).threads) == stack_groups.THREADS


def test_a_recording_has_at_most_so_many_characters_of_stacks_and_of_types() -> None:
    stacks = {"a" * 40: 9, "b" * 40: 8, "c" * 40: 7}
    assert list(stack_groups.read_folded({"stacks": stacks}, 100)) == ["a" * 40, "b" * 40]
    processes = [{"name": "p", "types": [{"type": "t" * 39, "count": 1}]}] * 3
    assert len(stack_groups.read_memory({"processes": processes}, 100)) == 2
