"""A parameter server that is killed and started again, between real processes."""

import re
import signal

import numpy as np
import pytest

from runtime.messages import training as messages
from tests.messages import mentions
from tests.runtime.trainer.attempt import Attempt
from tests.waiting import until

pytestmark = pytest.mark.processes

SCRIPT = """
import time
import numpy as np
from runtime import dist

job = dist.init()
names = {{f"layer-{{number}}": np.zeros((64, 4), "f4") for number in range(6)}}
p = job.params(names, opt=dist.{optimiser}, mapped={mapped})
for x, y in job.steps(job.reader("public/digits", batch=16, shuffle=64)):
    aim = np.stack([y % 10, y % 7, y % 5, y % 3], axis=1).astype("f4")
    error = x @ sum(p.values()) - aim
    version = p.push_pull({{name: x.T @ error / len(y) for name in p}}, n=len(y))
    job.report(version=version)
    time.sleep(0.01)
job.save_model("model.npz")
"""


class Run:
    """Attempts of a job with two trainers in sync mode."""

    def __init__(self, directory, optimiser, mapped, **variables):
        directory.mkdir()
        self.directory = directory
        self.script = directory / "train.py"
        self.script.write_text(SCRIPT.format(optimiser=optimiser, mapped=mapped))
        self.variables = {
            "REGATTA_PASSES": "2",
            "REGATTA_TRAINERS": "2",
            "REGATTA_DATASET": "public/digits",
            "REGATTA_CHECKPOINT_DIR": str(directory / "checkpoints"),
            **variables,
        }
        self.attempts = []

    @property
    def attempt(self):
        return self.attempts[-1]

    def start(self, servers=2):
        number = len(self.attempts) + 1
        variables = {**self.variables, "REGATTA_PSERVERS": str(servers)}
        self.attempts.append(Attempt(self.directory / f"attempt-{number}", self.script, number, **variables))
        self.attempt.start("master", 0)
        for index in range(servers):
            self.attempt.start("pserver", index)
        for index in (0, 1):
            self.attempt.start("trainer", index)

    def train_to(self, version):
        points = self.attempt.replicas["trainer-0"].points
        until(
            f"version {version} is there",
            lambda: any(value >= version for _at, _step, _key, value in points),
            story=lambda: "\n".join(f"--- {name}\n{self.attempt.log(name)}" for name in self.attempt.replicas),
        )

    def kept_by_all(self, servers):
        """The versions of which every server has a checkpoint."""
        logs = [self.attempt.log(f"pserver-{server}") for server in range(servers)]
        return set.intersection(*(set(re.findall(r"checkpoint of version (\d+):", log)) for log in logs))

    def replace(self, name, number):
        role, _hyphen, index = name.partition("-")
        self.attempt.replicas[name].process.send_signal(number)
        self.attempt.wait(name, 20)
        self.attempt.start(role, int(index))

    def model(self):
        for name in ("trainer-0", "trainer-1"):
            assert self.attempt.wait(name, 60) == 0, self.attempt.log(name)
        with np.load(self.attempt.output / "model.npz") as model:
            return {name: model[name] for name in model.files}


@pytest.fixture
def run(tmp_path):
    made = []

    def start(optimiser, servers=2, mapped=False, **variables):
        made.append(Run(tmp_path / f"run-{len(made)}", optimiser, mapped, **variables))
        made[-1].start(servers)
        return made[-1]

    yield start
    for one in made:
        one.attempt.close()


@pytest.mark.invariant("A killed pserver costs no version: the job ends with the same bits.")
def test_a_parameter_server_that_is_killed_comes_back_and_the_job_has_the_same_bits(run):
    # The rule keeps no state, so that the trainers hold everything.
    undisturbed = run("SGD(1e-5)").model()
    disturbed = run("SGD(1e-5)", mapped=True)
    disturbed.train_to(15)
    disturbed.replace("pserver-1", signal.SIGKILL)
    disturbed.train_to(40)
    disturbed.replace("pserver-0", signal.SIGKILL)
    ended = disturbed.model()
    for name, values in undisturbed.items():
        np.testing.assert_array_equal(ended[name], values)
    for server in (0, 1):
        ways = messages.PSERVER_RECOVERED_FROM_TRAINER, messages.PSERVER_RECOVERED_FROM_CHECKPOINT
        assert any(mentions(disturbed.attempt.log(f"pserver-{server}"), way, server=server) for way in ways)


def test_a_parameter_server_that_is_stopped_keeps_its_optimiser_state(run):
    undisturbed = run("Momentum(1e-5, 0.9)").model()
    disturbed = run("Momentum(1e-5, 0.9)")
    disturbed.train_to(15)
    disturbed.replace("pserver-1", signal.SIGTERM)
    ended = disturbed.model()
    for name, values in undisturbed.items():
        np.testing.assert_array_equal(ended[name], values)


@pytest.mark.invariant("A job whose processes were all killed resumes exactly at its last checkpoint.")
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 2)])
def test_a_job_that_is_killed_whole_goes_on_exactly_where_its_last_checkpoint_was(run, before, after):
    undisturbed = run("Adam(0.01)", 1, REGATTA_PASSES="5").model()
    killed = run("Adam(0.01)", before, REGATTA_PASSES="5", REGATTA_CHECKPOINT_SECONDS="0.3")
    until("all have a checkpoint", lambda: killed.kept_by_all(before))
    killed.train_to(40)
    killed.attempt.kill()
    killed.start(after)
    ended = killed.model()
    for name, values in undisturbed.items():
        np.testing.assert_array_equal(ended[name], values)
    assert mentions(killed.attempt.log("master-0"), messages.DATA_RESUMES)
    assert mentions(killed.attempt.log("pserver-0"), messages.PSERVER_RESUMES)
