"""A shard under trainers that join, leave, repeat requests and push in any order, against a simple model."""

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

DECLARATION = Declaration((Tensor("w", (2,), "<f4"),), SGD(1.0))
LAUNCHED = 3


class Trainer:
    """A trainer's own state. ``waiting`` is its request without an answer."""

    def __init__(self, sender):
        self.sender = sender
        self.seq = 0
        self.base = None
        self.inside = None  # the pass that it is in
        self.ended = -1
        self.waiting = None
        self.last_step = None


class ShardMachine(RuleBasedStateMachine):
    @initialize()
    def launch(self):
        self.shard = Shard(0, even_table(1), LAUNCHED)
        self.trainers = {}
        self.tickets = {}  # ticket -> (trainer, kind, step)
        self.incarnation = 0
        self.next_ticket = 0
        self.model = np.zeros(2, "f4")
        for index in range(LAUNCHED):
            self._come(index)
        self.shard.declare("declare", self.trainers[0].sender, DECLARATION, 0.0)
        self.shard.initialise("init", self.trainers[0].sender, DECLARATION.digest, [np.zeros(2, "f4")])

    # --- Trainers come and go ----------------------------------------------------------------------------------------
    def _come(self, index):
        self.incarnation += 1
        trainer = Trainer(TrainerId(index, self.incarnation))
        trainer.ended = max(self._pass_of_master(), 0) - 1
        self.trainers[index] = trainer
        self._take(self.shard.change_members(self._live()))

    def _live(self):
        return {index: trainer.sender.incarnation for index, trainer in self.trainers.items()}

    @rule(index=st.integers(0, 3))
    def join_or_restart(self, index):
        self._come(index)

    @precondition(lambda self: len(self.trainers) > 1)
    @rule(data=st.data())
    def leave(self, data):
        del self.trainers[data.draw(st.sampled_from(sorted(self.trainers)))]
        self._take(self.shard.change_members(self._live()))

    # --- What trainers do --------------------------------------------------------------------------------------------
    def _free(self):
        return [trainer for _index, trainer in sorted(self.trainers.items()) if trainer.waiting is None]

    def _pass_of_master(self):
        """The last pass of which the master has handed out tasks: all tasks before it are done."""
        return max((t.ended if t.inside is None else t.inside for t in self.trainers.values()), default=0)

    def _ask(self, trainer, kind, event, step=None):
        self.next_ticket += 1
        ticket = self.next_ticket
        trainer.waiting = ticket
        self.tickets[ticket] = (trainer, kind, step)
        self._take(event(ticket))

    @precondition(lambda self: self._free())
    @rule(data=st.data(), values=st.lists(st.integers(-8, 8), min_size=2, max_size=2), samples=st.integers(1, 5))
    def act(self, data, values, samples):
        trainer = data.draw(st.sampled_from(self._free()))
        trainer.seq += 1
        if trainer.inside is not None and data.draw(st.booleans()):
            self._push(trainer, Step(trainer.seq, samples, trainer.base, [np.array(values, "f4") / 7]))
        elif trainer.inside is not None:
            number, trainer.inside = trainer.inside, None
            trainer.ended = number
            self._ask(trainer, "end", lambda t: self.shard.end_pass(t, trainer.sender, trainer.seq, number))
        else:
            # The master's pass, perhaps again; or the next, which it may open while others have yet to end theirs.
            opened = max(self._pass_of_master(), 0)
            number = opened + (trainer.ended == opened and data.draw(st.booleans()))
            trainer.inside, trainer.ended = number, number - 1
            self._ask(trainer, "begin", lambda t: self.shard.begin_pass(t, trainer.sender, trainer.seq, number))

    def _push(self, trainer, step):
        trainer.last_step = step
        self._ask(trainer, "push", lambda t: self.shard.push(t, trainer.sender, step), step)

    @precondition(lambda self: any(trainer.waiting for trainer in self.trainers.values()))
    @rule(data=st.data())
    def ask_again_on_another_connection(self, data):
        trainer = data.draw(st.sampled_from([t for _i, t in sorted(self.trainers.items()) if t.waiting]))
        _trainer, kind, step = self.tickets[trainer.waiting]
        if kind == "push":
            self._ask(trainer, kind, lambda t: self.shard.push(t, trainer.sender, step), step)
        else:
            event = self.shard.begin_pass
            self._ask(trainer, kind, lambda t: event(t, trainer.sender, trainer.seq, trainer.inside))

    @precondition(lambda self: any(t.last_step and not t.waiting for t in self.trainers.values()))
    @rule(data=st.data())
    def an_old_step_arrives_once_more(self, data):
        ready = [t for _i, t in sorted(self.trainers.items()) if t.last_step and not t.waiting]
        trainer = data.draw(st.sampled_from(ready))
        (release,) = self.shard.push("old", trainer.sender, trainer.last_step)
        assert release.outcome is Outcome.DUPLICATE

    # --- What comes out ----------------------------------------------------------------------------------------------
    def _take(self, releases):
        versions = {}
        for release in releases:
            trainer, kind, step = self.tickets.get(release.ticket, (None, "", None))
            if trainer is None or release.outcome in (Outcome.SUPERSEDED, Outcome.FENCED):
                continue
            assert release.outcome is Outcome.DONE, (kind, release)
            assert trainer.waiting == release.ticket
            trainer.waiting = None
            trainer.base = release.version
            if kind == "push":
                versions.setdefault(release.version, []).append((trainer.sender.index, step))
        for _version, steps in sorted(versions.items()):
            self._apply([step for _index, step in sorted(steps, key=lambda pair: pair[0])])

    def _apply(self, steps):
        total = sum(step.samples for step in steps)
        if len(steps) == 1:
            mean = steps[0].gradients[0]
        else:
            mean = steps[0].gradients[0] * (steps[0].samples / total)
            for step in steps[1:]:
                mean = mean + step.gradients[0] * (step.samples / total)
        self.model = self.model - mean

    @invariant()
    def the_parameters_are_those_of_the_model(self):
        assert self.shard.state.parameters[0].tobytes() == self.model.tobytes()

    @invariant()
    def somebody_can_always_go_on(self):
        assert self._free() or not self.trainers

    @invariant()
    def what_a_trainer_inside_a_pass_has_pulled_stays_the_newest_version(self):
        for trainer in self.trainers.values():
            if trainer.inside is not None and trainer.waiting is None:
                assert trainer.base == self.shard.version


TestShard = ShardMachine.TestCase
TestShard.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
