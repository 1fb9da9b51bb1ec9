"""A shard that makes versions block by block compared with one that makes them at once: the results are equal.

Steps arrive in pieces, break off, arrive again on another connection, are pushed without samples or come from trainers
that are lost. Editions are lent and snapshots cut in the middle.
"""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.messages import Outcome
from runtime.parameters.optimisers import SGD, Adam, Momentum
from runtime.parameters.sharding import even_table
from runtime.pserver.requests import Step, TrainerId
from runtime.pserver.shard import Shard
from runtime.pserver.state.eager_update import Coming
from tests.properties import examples

BLOCKS, ELEMENTS, TRAINERS = 3, 2, 3
TENSORS = tuple(Tensor(name, (ELEMENTS,), "<f4") for name in "abc"[:BLOCKS])


class Sender:
    """A trainer, and the received part of its step. ``waiting`` is its request without an answer."""

    def __init__(self, trainer):
        self.trainer = trainer
        self.seq = 0
        self.base = 0
        self.waiting = None
        self.values = None
        self.samples = 0
        self.coming = None


def new_shard(rule_of_update, may_draft):
    shard = Shard(0, even_table(1), TRAINERS)
    shard.arriving.may_draft = may_draft
    declaration = Declaration(TENSORS, rule_of_update)
    shard.change_members({index: index + 1 for index in range(TRAINERS)})
    shard.declare("declare", TrainerId(0, 1), declaration, 0.0)
    shard.initialise("init", TrainerId(0, 1), declaration.digest, [np.ones(ELEMENTS, "f4") for _ in TENSORS])
    return shard


class DraftMachine(RuleBasedStateMachine):
    @initialize(rule_of_update=st.sampled_from([SGD(0.5), Momentum(0.1), Adam(0.01)]))
    def launch(self, rule_of_update):
        self.drafting = new_shard(rule_of_update, may_draft=True)
        self.plain = new_shard(rule_of_update, may_draft=False)
        self.senders = {}
        self.incarnation = TRAINERS
        self.tickets = 0
        self.lent = []  # editions, and their contents when they were lent
        self.cuts = []  # of both shards: the shard, the snapshot that is being written, the parameters as they were
        self.block = 0  # the next of it
        self.ahead = []  # blocks of drafts that are being read, and their contents
        for index in range(TRAINERS):
            self._begin(Sender(TrainerId(index, index + 1)))

    # --- Both shards get the same events -----------------------------------------------------------------------------
    def _both(self, sender, event):
        self.tickets += 1
        ticket = self.tickets
        if sender is not None:
            sender.waiting = ticket
        released = [self._outcomes(event(shard, ticket)) for shard in (self.drafting, self.plain)]
        assert released[0] == released[1]
        for held, outcome, version in released[0]:
            for one in self.senders.values():
                if one.waiting == held and outcome is not Outcome.SUPERSEDED:
                    one.waiting, one.base, one.coming, one.values = None, version, None, None

    @staticmethod
    def _outcomes(releases):
        return [(release.ticket, release.outcome, release.version) for release in releases]

    def _begin(self, sender):
        self.senders[sender.trainer.index] = sender
        sender.seq += 1
        self._both(sender, lambda shard, ticket: shard.begin_pass(ticket, sender.trainer, sender.seq, 0))

    def _some(self, data, condition):
        fitting = [sender for _index, sender in sorted(self.senders.items()) if condition(sender)]
        return data.draw(st.sampled_from(fitting)) if fitting else None

    def _members(self):
        live = {index: sender.trainer.incarnation for index, sender in self.senders.items()}
        self._both(None, lambda shard, _ticket: shard.change_members(live))

    # --- A step on its way -------------------------------------------------------------------------------------------
    @rule(data=st.data(), samples=st.integers(1, 3))
    def a_step_begins_to_come(self, data, samples):
        sender = self._some(data, lambda one: one.waiting is None and one.values is None)
        if sender is not None:
            self._send(sender, samples, data.draw(st.integers(0, 1000)))

    def _send(self, sender, samples, seed):
        sender.seq += 1
        sender.samples = samples
        sender.values = list(np.random.default_rng(seed).normal(size=(BLOCKS, ELEMENTS)).astype("f4"))
        self._connect(sender)

    def _connect(self, sender):
        memory = [np.full(ELEMENTS, np.nan, "f4") for _ in TENSORS]
        sender.coming = Coming(sender.seq, sender.samples, sender.base, memory)
        self.drafting.expect(sender.trainer, sender.coming)

    @rule(data=st.data())
    def a_block_of_it_arrives(self, data):
        sender = self._some(data, lambda one: one.coming and one.coming.arrived < BLOCKS)
        if sender is not None:
            self._deliver(sender)

    def _deliver(self, sender):
        coming = sender.coming
        coming.gradients[coming.arrived][:] = sender.values[coming.arrived]
        coming.arrived += 1
        self.drafting.arrive(coming)

    @rule(data=st.data())
    def it_is_whole(self, data):
        sender = self._some(data, lambda one: one.coming and one.coming.arrived == BLOCKS and one.waiting is None)
        if sender is not None:
            self._push(sender, sender.samples)

    @rule(random=st.randoms(use_true_random=False))
    def all_steps_come_to_their_end(self, random):
        """Complete the steps that are being sent and one of every other trainer, in any order."""
        free = [sender for _index, sender in sorted(self.senders.items()) if sender.waiting is None]
        for sender in free:
            if sender.values is None:
                self._send(sender, random.randint(1, 3), random.randint(0, 1000))
        while going := [sender for sender in free if sender.waiting is None and sender.coming is not None]:
            sender = random.choice(going)
            if sender.coming.arrived < BLOCKS:
                self._deliver(sender)
            else:
                free.remove(sender)
                self._push(sender, sender.samples)

    @rule(data=st.data())
    def a_step_of_no_samples_comes(self, data):
        sender = self._some(data, lambda one: one.waiting is None and one.values is None)
        if sender is not None:
            sender.seq += 1
            self._push(sender, 0)

    def _push(self, sender, samples):
        gradients = {self.drafting: sender.coming.gradients, self.plain: sender.values} if samples else {}

        def event(shard, ticket):
            step = Step(sender.seq, samples, sender.base, gradients.get(shard, ()))
            return shard.push(ticket, sender.trainer, step)

        self._both(sender, event)

    @rule(data=st.data())
    def its_connection_breaks_and_it_comes_again(self, data):
        sender = self._some(data, lambda one: one.coming is not None)
        if sender is not None:
            self._connect(sender)
            if sender.waiting is not None:  # it had arrived completely, and is sent again completely
                for target, values in zip(sender.coming.gradients, sender.values, strict=True):
                    target[:] = values
                sender.coming.arrived = BLOCKS
                self.drafting.arrive(sender.coming)
                self._push(sender, sender.samples)

    # --- Members -----------------------------------------------------------------------------------------------------
    @rule(data=st.data())
    def a_trainer_is_replaced(self, data):
        sender = self._some(data, lambda one: True)
        del self.senders[sender.trainer.index]
        self._members()
        self.incarnation += 1
        replacement = Sender(TrainerId(sender.trainer.index, self.incarnation))
        self.senders[sender.trainer.index] = replacement
        self._members()
        self._begin(replacement)

    # --- Readers -----------------------------------------------------------------------------------------------------
    @rule()
    def somebody_pulls(self):
        edition = self.drafting.lend()
        assert edition.version == self.drafting.version
        self.lent.append((edition, [array.copy() for array in edition.arrays]))

    @precondition(lambda self: self.lent)
    @rule(data=st.data())
    def it_has_been_sent(self, data):
        edition, _held = self.lent.pop(data.draw(st.integers(0, len(self.lent) - 1)))
        self.drafting.state.editions.return_edition(edition)

    @rule(data=st.data())
    def a_draft_is_read(self, data):
        sender = self._some(data, lambda one: one.coming and self.drafting.arriving.draft_with(one.coming))
        if sender is not None:
            edition = self.drafting.state.editions.borrow(self.drafting.arriving.draft_with(sender.coming).edition)
            made = len(edition.blocks)
            self.lent.append((edition, [array.copy() for array in edition.arrays[:made]]))

    @precondition(lambda self: not self.cuts)
    @rule()
    def a_checkpoint_is_cut(self):
        for shard in (self.drafting, self.plain):
            shard.state.prepare_cut()
            self.cuts.append((shard, shard.cut(), [array.copy() for array in shard.state.parameters]))

    @precondition(lambda self: self.cuts)
    @rule()
    def a_block_of_it_is_written(self):
        """Later versions and loans do not change it."""
        number, self.block = self.block, (self.block + 1) % BLOCKS
        kept = [snapshot.take(number) for _shard, snapshot, _held in self.cuts]
        assert [array.tobytes() for array in kept[0]] == [array.tobytes() for array in kept[1]]
        assert all(taken[0].tobytes() == cut[2][number].tobytes() for taken, cut in zip(kept, self.cuts, strict=True))
        if number == BLOCKS - 1:
            for shard, snapshot, _held in self.cuts:
                shard.state.forget_cut(snapshot)
            self.cuts.clear()

    @invariant()
    def both_have_the_same_bits(self):
        mine, theirs = ([array.tobytes() for array in shard.state.parameters] for shard in (self.drafting, self.plain))
        assert mine == theirs

    @invariant()
    def what_is_lent_does_not_change(self):
        for edition, held in self.lent:
            assert [array.tobytes() for array in edition.arrays[: len(held)]] == [array.tobytes() for array in held]


@pytest.mark.invariant("A version that is drafted while gradients arrive equals the version of whole steps.")
class TestDrafts(DraftMachine.TestCase):
    settings = settings(max_examples=examples(25), stateful_step_count=40, deadline=None)
