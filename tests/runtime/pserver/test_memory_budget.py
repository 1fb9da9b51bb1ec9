"""Whether parameters fit into a server's memory, with the sizes."""

from __future__ import annotations

import pytest

from runtime.messages import paragraph
from runtime.messages import training as messages
from runtime.parameters.declaration import BlockPlace, Declaration, Tensor
from runtime.parameters.optimisers import SGD, Adam, Momentum, Optimiser
from runtime.parameters.sharding import even_table
from runtime.pserver.memory_budget import MemoryBudget
from tests.messages import mentions

MEBIBYTE = 1 << 20


def refusal(budget: MemoryBudget, mebibytes: int, rule: Optimiser, servers: int = 1) -> str:
    declaration = Declaration((Tensor("w", (mebibytes * MEBIBYTE // 4,), "<f4"),), rule)
    return budget.refusal(declaration, [place for place in declaration.blocks(even_table(servers)) if not place.server])


@pytest.mark.invariant("Parameters beyond the memory budget of a pserver are refused with the numbers.")
def test_what_is_too_large_is_refused_with_the_numbers() -> None:
    assert refusal(MemoryBudget("pserver-0", 512 * MEBIBYTE, keeps=True), 100, Adam(0.1)) == (
        paragraph(
            messages.PSERVER_MEMORY_TOO_SMALL(
                server="pserver-0",
                needed="764 MiB",
                values="100 MiB",
                state="200 MiB",
                copies=messages.GRADIENTS_AND_CHECKPOINT_COPY(),
                limit="512 MiB",
            ),
            messages.INCREASE_PSERVER_RESOURCES(),
        )
    )


@pytest.mark.parametrize(
    ("budget", "rule", "servers"),
    [
        (MemoryBudget(), Adam(0.1), 1),
        (MemoryBudget("pserver-0", 764 * MEBIBYTE, keeps=True), Adam(0.1), 1),
        (MemoryBudget("pserver-0", 512 * MEBIBYTE, keeps=False), Adam(0.1), 1),
        (MemoryBudget("pserver-0", 512 * MEBIBYTE, keeps=True), SGD(0.1), 1),
        (MemoryBudget("pserver-0", 512 * MEBIBYTE, keeps=True), Adam(0.1), 2),
    ],
    ids=["no limit", "just enough", "no checkpoints", "no state", "on two servers"],
)
def test_what_fits_is_taken(budget: MemoryBudget, rule: Optimiser, servers: int) -> None:
    assert refusal(budget, 100, rule, servers) == ""


def test_only_the_servers_own_blocks_count() -> None:
    declaration = Declaration((Tensor("w", (10**9,), "<f4"),), SGD(0.1))
    assert MemoryBudget("pserver-0", 65 * MEBIBYTE).refusal(declaration, [BlockPlace(0, 0, 0, 1000, 0)]) == ""


def test_a_journal_needs_memory_for_a_second_copy_of_the_values() -> None:
    declaration = Declaration((Tensor("w", (100 * MEBIBYTE // 4,), "<f4"),), SGD(0.1))
    budget = MemoryBudget("pserver-0", 300 * MEBIBYTE)
    places = declaration.blocks(even_table(1))
    assert budget.refusal(declaration, places) == ""
    assert mentions(budget.refusal(declaration, places, journalled=True), messages.PSERVER_MEMORY_TOO_SMALL)


def test_a_version_beside_the_present_one_needs_values_and_state_again_and_a_rounded_one_more() -> None:
    wanted = Declaration((Tensor("w", (64 * MEBIBYTE // 4,), "<f4"),), Momentum(0.1))
    places = wanted.blocks(even_table(1))
    itself, values = 64, 64
    for limit, plain, rounded in ((5, True, False), (8, True, True), (4, False, False)):
        budget = MemoryBudget("pserver-0", (itself + limit * values) << 20)
        assert budget.fits_drafts(wanted, places) is plain
        assert budget.fits_drafts(wanted, places, rounded=True) is rounded
