"""Shards in ``m_of_n`` and ``ssp`` under trainers that push in any order, leave and join, against a simple model."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.messages import Outcome
from runtime.parameters.optimisers import SGD
from runtime.parameters.sharding import even_table
from runtime.pserver.requests import Step, TrainerId
from runtime.pserver.shard import Shard
from tests.properties import examples


class ModeMachine(RuleBasedStateMachine):
    """Every trainer pushes whole numbers, so that sums are exact, and pulls after each push."""

    @initialize(mode=st.sampled_from(["m_of_n(2)", "m_of_n(3)", "ssp(1)", "ssp(3)"]), trainers=st.integers(2, 4))
    def launch(self, mode, trainers):
        self.kind, self.number = mode.split("(")[0], int(mode[-2])
        declaration = Declaration((Tensor("w", (1,), "<f4"),), SGD(1.0), mode)
        self.shard = Shard(0, even_table(1), trainers)
        self.trainer = {index: TrainerId(index, 100 + index) for index in range(trainers)}
        self.seq = 0
        self.bases = {}
        self.waiting = {}  # ticket of each trainer's push or pull, and the step
        self.counted = {}  # version -> steps that are in it
        self.shard.change_members(self._live())
        self.shard.declare("declare", self.trainer[0], declaration, 0.0)
        self.shard.initialise("initialise", self.trainer[0], declaration.digest, [np.zeros(1, "f4")])
        for index in range(trainers):
            self._begin(index)

    def _live(self):
        return {index: trainer.incarnation for index, trainer in self.trainer.items()}

    def _next(self):
        self.seq += 1
        return self.seq

    def _begin(self, index):
        self.waiting[index] = (("begin", self._next()), None)
        self._take(self.shard.begin_pass(self.waiting[index][0], self.trainer[index], self.seq, 0))

    def _free(self):
        return sorted(self.trainer.keys() - self.waiting.keys())

    @precondition(lambda self: self._free())
    @rule(data=st.data(), samples=st.sampled_from([1, 1, 2]))
    def push(self, data, samples):
        index = data.draw(st.sampled_from(self._free()))
        step = Step(self._next(), samples, self.bases[index], [np.array([6.0], "f4")])
        self.waiting[index] = (("push", self.seq), step)
        self._take(self.shard.push(("push", self.seq), self.trainer[index], step))

    @precondition(lambda self: len(self.trainer) > 1)
    @rule(data=st.data())
    def kill(self, data):
        index = data.draw(st.sampled_from(sorted(self.trainer)))
        del self.trainer[index]
        self.waiting.pop(index, None)
        self._take(self.shard.change_members(self._live()))

    @rule(index=st.integers(0, 3))
    def come(self, index):
        if index not in self.trainer:
            self.trainer[index] = TrainerId(index, 1000 + self._next())
            self._take(self.shard.change_members(self._live()))
            self._begin(index)

    def _take(self, releases):
        for release in releases:
            index = next((i for i, (ticket, _step) in self.waiting.items() if ticket == release.ticket), None)
            if index is None:
                assert release.outcome is Outcome.FENCED
                continue
            _ticket, step = self.waiting.pop(index)
            if step is not None:
                self._pushed(index, step, release)
            self.bases[index] = release.version

    def _pushed(self, index, step, release):
        if release.outcome is Outcome.STALE:
            assert self.kind == "m_of_n"
            assert step.base < release.version
            return
        assert release.outcome is Outcome.DONE
        self.counted.setdefault(release.version, []).append(step)
        if self.kind == "ssp":
            self._pull(index)

    def _pull(self, index):
        self.waiting[index] = (("pull", self._next()), None)
        self._take(self.shard.pull(self.waiting[index][0], self.trainer[index]))

    @invariant()
    def a_version_is_made_of_pushes_for_it_by_enough_trainers(self):
        if self.kind == "m_of_n":
            for version, steps in self.counted.items():
                assert {step.base for step in steps} == {version - 1}
                assert len(steps) <= max(self.number, 1)

    @invariant()
    def every_version_has_moved_the_parameter_according_to_the_mode(self):
        value = float(self.shard.state.parameters[0][0])
        if self.kind == "m_of_n":
            assert value == -6.0 * self.shard.version
        else:
            assert -6.0 * self.shard.version <= value <= 0

    @invariant()
    def somebody_can_always_go_on(self):
        assert self._free()


TestModes = ModeMachine.TestCase
TestModes.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
