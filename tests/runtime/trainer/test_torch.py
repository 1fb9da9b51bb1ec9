import importlib

import numpy as np
import pytest

from runtime import contract
from runtime.errors import UsageError
from runtime.parameters.optimisers import SGD, Adam
from runtime.protocol.client import Client
from runtime.protocol.frames import Op
from runtime.trainer.environment import Alone
from runtime.trainer.job import Job
from runtime.trainer.servers.server_store import ServerStore
from tests.waiting import until

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def _torch():
    """Import torch where these tests run: it takes seconds, which each process that only collects them would lose."""
    global torch, dist_torch
    torch, dist_torch = importlib.import_module("torch"), importlib.import_module("runtime.adapters.torch")


@pytest.fixture
def job():
    environment = contract.read({})
    return Job(environment, Alone(environment))


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))


def batches():
    generator = torch.Generator().manual_seed(2)
    for _ in range(5):
        yield torch.randn(8, 64, generator=generator), torch.randint(0, 10, (8,), generator=generator)


def loss_of(model, x, y):
    return torch.nn.functional.cross_entropy(model(x), y)


def values(model):
    return [parameter.detach().numpy().copy() for parameter in model.parameters()]


def test_steps_are_those_of_the_library_s_own_optimiser(job):
    ours, theirs = network(), network()
    shared = dist_torch.attach(job, ours, opt=SGD(0.1))
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.1)
    for x, y in batches():
        loss_of(ours, x, y).backward()
        shared.step(n=len(y))
        optimiser.zero_grad()
        loss_of(theirs, x, y).backward()
        optimiser.step()
    for mine, other in zip(values(ours), values(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-7)


class Beside(Alone):
    """A trainer whose parameters are on servers in this process."""

    def __init__(self, attempt, trainer=0, clients=()):
        super().__init__(contract.read({}))
        self._attempt, self._trainer, self._clients = attempt, trainer, clients

    def store(self, wire):
        return ServerStore(self._clients, share=False) if self._clients else self._attempt.store(self._trainer)


class NotesOps(Client):
    """Records the requests that were sent, in order."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.sent = []

    def send(self, message):
        self.sent.append(message.head.op)
        super().send(message)


def test_layers_are_sent_while_the_backward_pass_goes_on(servers):
    """The first layer's gradient is computed last: before that, the last layer's has been sent."""
    client = NotesOps(servers(1).running[0].address, incarnation=100)
    model = network()
    shared = dist_torch.attach(Job(contract.read({}), Beside(None, clients=[client])), model, SGD(0.1), overlap=True)
    left = []
    model[0].weight.register_hook(lambda gradient: left.append(until("it has left", lambda: Op.STAGE in client.sent)))
    for x, y in batches():
        client.sent.clear()
        loss_of(model, x, y).backward()
        shared.step(n=len(y))
    assert left == [True] * 5
    assert client.sent.count(Op.STAGE) == 4


def clipped(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def doubled(model):
    loss_of(model, *next(batches())).backward()


@pytest.mark.parametrize("between", [lambda model: None, clipped, doubled])
def test_overlap_changes_no_bit_whatever_torch_does_to_gradients_before_the_step(servers, between):
    def train(overlap):
        model = network()
        job = Job(contract.read({}), Beside(servers(2)))
        shared = dist_torch.attach(job, model, opt=SGD(0.1), overlap=overlap)
        for x, y in batches():
            loss_of(model, x, y).backward()
            between(model)
            shared.step(n=len(y))
        return b"".join(value.tobytes() for value in values(model))

    assert train(overlap=True) == train(overlap=False)


def test_gradients_are_gone_after_a_step(job):
    model = network()
    shared = dist_torch.attach(job, model, opt=SGD(0.1))
    for version, (x, y) in enumerate(batches(), start=1):
        loss_of(model, x, y).backward()
        assert shared.step(n=len(y)) == version
        assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_learns_the_digits(job):
    model = network()
    shared = dist_torch.attach(job, model, opt=Adam(0.005))
    costs = []
    for x, y in job.steps(job.reader("public/digits", batch=64, shuffle=1024), passes=5):
        loss = loss_of(model, torch.from_numpy(x), torch.from_numpy(y))
        loss.backward()
        shared.step(n=len(y))
        costs.append(loss.item())
    assert costs[-1] < costs[0] / 3


def test_two_trainers_have_the_same_model_after_each_step(servers, together):
    attempt = servers(2, trainers=2)

    def run(trainer):
        model = torch.nn.Linear(64, 10)  # each with its own initial values
        shared = dist_torch.attach(Job(contract.read({}), Beside(attempt, trainer)), model, opt=SGD(0.1))
        for x, y in batches():
            loss_of(model, x + trainer, y).backward()
            shared.step(n=len(y))
        shared.params.leave()
        return b"".join(value.tobytes() for value in values(model))

    assert len(set(together(run, 2))) == 1


def test_parameters_without_a_part_in_the_loss_and_frozen_ones_stay(job):
    model = torch.nn.ModuleDict({name: torch.nn.Linear(4, 1, bias=False) for name in ("used", "unused", "frozen")})
    model["frozen"].weight.requires_grad_(False)
    shared = dist_torch.attach(job, model, opt=SGD(0.1))
    before = values(model)
    model["used"](torch.ones(1, 4)).sum().backward()
    shared.step()
    changed = [bool((old != new).any()) for old, new in zip(before, values(model), strict=True)]
    assert list(shared.params) == ["used.weight", "unused.weight"]
    assert changed == [True, False, False]


def test_a_parameter_that_is_laid_out_otherwise_is_pulled_into_too(job):
    model = torch.nn.Linear(3, 2, bias=False)
    model.weight.data = torch.ones(3, 2).t()
    shared = dist_torch.attach(job, model, opt=SGD(1.0))
    model(torch.ones(1, 3)).sum().backward()
    shared.step()
    assert model.weight.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize(("change", "pattern"), [(lambda m: m.half(), "model.float"), (lambda m: m.to("meta"), "cpu")])
def test_a_model_that_cannot_be_shared_is_refused_with_a_message(job, change, pattern):
    with pytest.raises(UsageError, match=pattern):
        dist_torch.attach(job, change(network()))
