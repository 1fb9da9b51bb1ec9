"""The pure machines of master and parameter server with a simulated network: no process, no socket, no clock.

A schedule is a list of (rule, number). A rule is the next event: a client sends a request, a message arrives, is lost
or is duplicated, an edge is cut or restored, a process crashes or restarts, time passes. The number selects where. So a
schedule can be drawn, shrunk and repeated, and messages meet any order and any delay. The clients behave as
``runtime.protocol.client`` does: one request at a time, repeated with the same number until it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runtime.data.dataset import Chunk
from runtime.master.messages import Ahead, Answer, JobDone, PassEnd, Task, Trainer, Wait
from runtime.master.queue.task_queue import Key, Plan, TaskQueue, Verdict
from runtime.master.queue_store import Ledger
from runtime.master.task_table import TaskTable
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.messages import Outcome
from runtime.parameters.optimisers import SGD
from runtime.parameters.sharding import even_table
from runtime.pserver.requests import Releases, Step, TrainerId
from runtime.pserver.shard import Shard
from tests.runtime.master.queue_rules import MemoryStore, QueueRules

Schedule = Sequence[tuple[str, int]]


@dataclass
class Client:
    """A trainer's end of the network. ``request`` is the number of its request; ``asked`` the unanswered request."""

    index: int
    incarnation: int
    request: int = 0
    asked: Any = None


@dataclass(frozen=True)
class Message:
    """A message on its way from a start of a trainer to the server, or (``answer``) back."""

    client: tuple[int, int]
    request: int
    body: Any
    answer: bool = False


@dataclass
class Network:
    """The messages on their way, in no order; ``cut`` are the trainers without connection.

    Nothing arrives over a cut edge.
    """

    under_way: list[Message] = field(default_factory=list)
    cut: set[int] = field(default_factory=set)

    def choose(self, number: int, takes: bool = True) -> Message | None:
        """One of the messages that can arrive; without ``takes`` it stays in the network, and so arrives again."""
        able = [message for message in self.under_way if message.client[0] not in self.cut]
        if not able:
            return None
        message = able[number % len(able)]
        if takes:
            self.under_way.remove(message)
        return message


class Simulation:
    """The common part: clients, the network, and the rules that only concern them."""

    def __init__(self, trainers: int) -> None:
        self.network = Network()
        self.incarnations = 0
        self.clients: dict[int, Client] = {}
        self.now = 0.0
        for index in range(trainers):
            self._come(index)

    def run(self, schedule: Schedule) -> None:
        for rule, number in schedule:
            self.RULES[rule](self, number)

    RULES: Mapping[str, Callable[[Any, int], None]] = {}

    # --- What follows where a rule says so ---------------------------------------------------------------------------
    def members(self) -> None:
        """Send the live members to the server."""

    def receive(self, client: Client, body: Any) -> None:
        """Handle an answer at a client."""

    def serve(self, message: Message) -> None:
        """Handle a request at the server."""

    def next_request(self, client: Client, number: int) -> Any:
        """The next request of a client; None if there is none."""

    # --- Rules -------------------------------------------------------------------------------------------------------
    def ask(self, number: int) -> None:
        """A client without a request makes one; a waiting one breaks its connection and repeats the request."""
        if not self.clients:
            return
        client = self.clients[sorted(self.clients)[number % len(self.clients)]]
        if client.asked is None:
            body = self.next_request(client, number)
            if body is None:
                return
            client.request, client.asked = client.request + 1, body
        self.network.under_way.append(Message((client.index, client.incarnation), client.request, client.asked))

    def arrive(self, number: int) -> None:
        if message := self.network.choose(number):
            self._deliver(message)

    def arrive_and_come_again(self, number: int) -> None:
        if message := self.network.choose(number, takes=False):
            self._deliver(message)

    def lose(self, number: int) -> None:
        self.network.choose(number)

    def cut(self, number: int) -> None:
        self.network.cut.add(number % 3)

    def heal(self, number: int) -> None:
        self.network.cut.clear()

    def crash(self, number: int) -> None:
        """A trainer is lost, and the membership is updated."""
        if len(self.clients) > 1:
            del self.clients[sorted(self.clients)[number % len(self.clients)]]
            self.members()

    def come(self, number: int) -> None:
        """A trainer starts again, also one that still counts as alive."""
        self._come(number % 3)
        self.members()

    def _come(self, index: int) -> None:
        self.incarnations += 1
        self.clients[index] = Client(index, self.incarnations)

    def _deliver(self, message: Message) -> None:
        if not message.answer:
            self.serve(message)
            return
        client = self.clients.get(message.client[0])
        # An answer to an earlier request, or to an earlier start, reaches a closed connection.
        if client and client.incarnation == message.client[1] and client.request == message.request and client.asked:
            client.asked = None
            self.receive(client, message.body)

    def answer(self, message: Message, body: Any) -> None:
        self.network.under_way.append(Message(message.client, message.request, body, answer=True))


_COMMON: Mapping[str, Callable[[Any, int], None]] = {
    "ask": Simulation.ask,
    "arrive": Simulation.arrive,
    "arrive and come again": Simulation.arrive_and_come_again,
    "lose": Simulation.lose,
    "cut": Simulation.cut,
    "heal": Simulation.heal,
    "crash": Simulation.crash,
    "come": Simulation.come,
}


class Tasks(Simulation):
    """The master's queue with its ledger."""

    PASSES = 2

    def __init__(self, tasks: int, sync: bool, prefetch: bool = False) -> None:
        super().__init__(3)
        self.rules = QueueRules()
        self.plan = Plan(self.PASSES, sync, trainers=3, prefetch=prefetch)
        chunks = tuple((Chunk("file", 10 * task, 10, 1),) for task in range(tasks))
        self.table = TaskTable("numbers", chunks)
        self.store = MemoryStore()
        self.ledger = Ledger(self.store, "/j/")
        self.queue = TaskQueue.begin(self.plan, self.table, 0.0)
        self.commit()
        self.ended: dict[int, int | None] = {}
        self.hands: dict[int, Task] = {}
        self.held: dict[int, list[Task]] = {}  # the prefetched tasks of each trainer that are not begun
        self.finishes_sent: dict[
            int, list[Task]
        ] = {}  # finishes for which each has sent a notice, without an answer since
        self.members()

    def commit(self) -> None:
        self.ledger.commit(self.queue.take(self.now), self.queue.entries, self.table)
        self.rules.check(self.queue)

    def members(self) -> None:
        self.queue.members([Trainer(client.index, client.incarnation) for client in self.clients.values()], self.now)
        self.commit()

    def next_request(self, client: Client, number: int) -> Any:
        task = self.hands.get(client.incarnation)
        if task is None:
            return ("get", self.ended.get(client.incarnation))
        if self.held.get(client.incarnation) and number // 7 % 5:
            return self._go_on(client, task)
        return (("done", "done", "fail", "release")[number // 7 % 4], task)

    def _go_on(self, client: Client, task: Task) -> Any:
        """Begin the next prefetched task, send a notice of it, and request the tasks after it."""
        begun = self.hands[client.incarnation] = self.held[client.incarnation].pop(0)
        self.finishes_sent.setdefault(client.incarnation, []).append(task)
        self.network.under_way.append(Message((client.index, client.incarnation), 0, ("word", (task, begun))))
        return ("ahead", (tuple(self.finishes_sent[client.incarnation]), begun))

    def serve(self, message: Message) -> None:
        verb, what = message.body
        trainer = Trainer(*message.client)
        if verb == "word":
            self._begun(trainer, *what)
            self.commit()
            return
        result: Any = self._answered(verb, what, trainer, message.request)
        self.commit()
        self.answer(message, (verb, what, result))

    def _answered(self, verb: str, what: Any, trainer: Trainer, request: int) -> Any:
        if verb == "get":
            return self._get(trainer, request, what)
        return self._ahead(trainer, *what) if verb == "ahead" else self._report(verb, what, trainer)

    def _begun(self, trainer: Trainer, done: Task, begun: Task) -> None:
        self._report("done", done, trainer)
        self._report("begun", begun, trainer)

    def _ahead(self, trainer: Trainer, done: Sequence[Task], begun: Task) -> Ahead:
        for task in done:
            self._report("done", task, trainer)
        self._report("begun", begun, trainer)
        result = self.queue.ahead(trainer, self.now)
        for task in result.tasks:
            self.rules.given(trainer, task)
        return result

    def _get(self, trainer: Trainer, request: int, ended: int | None) -> Answer:
        result = self.queue.get(trainer, request, ended, self.now)
        if isinstance(result, Task):
            for task in (result, *result.prefetched):
                self.rules.given(trainer, task)
        return result

    def _report(self, verb: str, task: Task, trainer: Trainer) -> Verdict:
        key = Key(task.pass_id, task.task_id, task.epoch, trainer)
        if verb == "fail":
            return self.queue.fail(key, "it raised", self.now)
        report: Callable[[Key, float], Verdict] = getattr(self.queue, verb)
        if (result := report(key, self.now)) is Verdict.OK and verb == "done":
            self.rules.acknowledged(key)
        return result

    def receive(self, client: Client, body: Any) -> None:
        verb, what, result = body
        if verb == "get":
            self._take(client, result)
        elif verb == "ahead":
            self.held[client.incarnation] = list(result.tasks)
            del self.finishes_sent[client.incarnation][: len(what[0])]
        else:
            self.hands.pop(client.incarnation, None)
            self.held.pop(client.incarnation, None)

    def _take(self, client: Client, result: Answer) -> None:
        if isinstance(result, Task):
            self.hands[client.incarnation] = result
            self.held[client.incarnation] = list(result.prefetched)
            self.ended[client.incarnation] = result.pass_id - 1
        elif isinstance(result, PassEnd):
            self.ended[client.incarnation] = result.pass_id

    def master_crashes(self, number: int) -> None:
        """Another master reads the committed state; requests on their way to the first are lost or not."""
        self.ledger = Ledger(self.store, "/j/")
        saved = self.ledger.load(self.table)
        assert saved is not None
        self.queue = TaskQueue.resume(self.plan, self.table, saved)
        self.members()

    def time_passes(self, number: int) -> None:
        self.now += (1.0, 30.0, 61.0)[number % 3]
        self.queue.tick(self.now)
        self.commit()

    def finish(self) -> None:
        """I6: with a complete network and a live trainer, the job ends."""
        self.network.cut.clear()
        for rounds in range(400):
            if self.queue.finished or self.queue.failed:
                return
            self.now += 61.0 if rounds % 20 == 19 else 0.0
            self.queue.tick(self.now)
            self.commit()
            for client in list(self.clients.values()):
                client.asked = None
                client.request += 1
                task = self.hands.pop(client.incarnation, None)
                if task:
                    self._report("done", task, _trainer(client))
                result = self._get(_trainer(client), client.request, self.ended.get(client.incarnation))
                self.commit()
                if not isinstance(result, Wait | JobDone):
                    self._take(client, result)
        raise AssertionError("I6: the job does not end")

    RULES = {**_COMMON, "master crashes": master_crashes, "time passes": time_passes}


def _trainer(client: Client) -> Trainer:
    return Trainer(client.index, client.incarnation)


class Accounts(Simulation):
    """One shard. Every step withdraws an integer; ``applied`` are the reported steps of each version."""

    DECLARED = Declaration((Tensor("w", (1,), "<f4"),), SGD(1.0))

    def __init__(self, mode: str) -> None:
        super().__init__(3)
        declaration = Declaration(self.DECLARED.tensors, self.DECLARED.optimiser, mode)
        self.shard = Shard(0, even_table(1), 3)
        self.waiting: dict[int, tuple[Message, Step | None]] = {}
        self.tickets = 0
        self.bases: dict[int, int] = {}
        self.inside: dict[int, int] = {}
        self.applied: dict[tuple[int, int], int] = {}
        self.members()
        self.shard.declare("declaration", self._trainer_id(self.clients[0]), declaration, 0.0)
        self.shard.initialise("values", self._trainer_id(self.clients[0]), declaration.digest, [np.zeros(1, "f4")])

    def _trainer_id(self, client: Client) -> TrainerId:
        return TrainerId(client.index, client.incarnation)

    def members(self) -> None:
        self._answer_all(self.shard.change_members({c.index: c.incarnation for c in self.clients.values()}))

    def next_request(self, client: Client, number: int) -> Any:
        if client.incarnation not in self.inside:
            return ("begin", 0)
        if number // 7 % 8 == 0:
            return ("end", 0)
        return ("push", Step(client.request + 1, 1, self.bases[client.incarnation], [np.full(1, 840.0, "f4")]))

    def serve(self, message: Message) -> None:
        self.tickets += 1
        verb, what = message.body
        trainer = TrainerId(*message.client)
        self.waiting[self.tickets] = (message, what if verb == "push" else None)
        self._answer_all(
            self.shard.push(self.tickets, trainer, what)
            if verb == "push"
            else getattr(self.shard, f"{verb}_pass")(self.tickets, trainer, message.request, what)
        )

    def _answer_all(self, releases: Releases) -> None:
        for release in releases:
            held = self.waiting.pop(release.ticket, None)
            if held is None:
                continue
            message, step = held
            if step and release.outcome is Outcome.DONE:
                name = (message.client[1], step.seq)
                assert name not in self.applied, "I7: a step was applied twice"
                self.applied[name] = release.version
            self.answer(message, (message.body[0], release))
        self._check_balance()

    def _check_balance(self) -> None:
        """I10: each version is a mean of steps of the same amount, from any trainer; alone its share is a third."""
        if self.shard.mode.synchronous and self.shard.election.ready:
            assert float(self.shard.state.parameters[0][0]) == -840.0 * self.shard.version, "I10: the account is wrong"
            assert len(set(self.applied.values())) == self.shard.version, "I7: a version nobody made"

    def receive(self, client: Client, body: Any) -> None:
        verb, release = body
        if release.outcome is Outcome.SUPERSEDED:
            client.asked = self._repeated(client, verb)  # as the client does: the same again
            return
        self.bases[client.incarnation] = self.shard.version if verb != "push" else release.version
        if verb == "begin":
            self.inside[client.incarnation] = 0
        elif verb == "end":
            self.inside.pop(client.incarnation, None)

    def _repeated(self, client: Client, verb: str) -> Any:
        base = self.bases.get(client.incarnation, 0)
        return (verb, Step(client.request, 1, base, [np.full(1, 840.0, "f4")]) if verb == "push" else 0)

    def time_passes(self, number: int) -> None:
        self.now += 61.0
        self._answer_all(self.shard.tick(self.now))

    RULES = {**_COMMON, "time passes": time_passes}
