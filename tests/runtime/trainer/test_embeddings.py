"""A script with a table as a job of real processes: digits classified by an embedding of every shade of every pixel."""

import hashlib

import numpy as np
import pytest

from runtime import contract
from tests.runtime.trainer.attempt import Attempt

pytestmark = pytest.mark.processes

SCRIPT = """
import numpy as np
from runtime import dist

job = dist.init()
p = job.params({"b": np.zeros(10, "f4")}, opt=dist.SGD(0.5))
shades = p.table("shades", dim=10, init=dist.Uniform(0.01), opt=dist.Adagrad(0.1))
pixels = 17 * np.arange(64)


def ids_of(x):
    return pixels + np.rint(x * 16).astype(int)


for x, y in job.steps(job.reader(batch=64, shuffle=1024)):
    ids = ids_of(x)
    z = shades.pull(ids).sum(1) + p["b"]
    z -= z.max(1, keepdims=True)
    s = np.exp(z)
    s /= s.sum(1, keepdims=True)
    s[np.arange(len(y)), y] -= 1
    s /= len(y)
    shades.push(ids, np.broadcast_to(s[:, None, :], (len(y), 64, 10)).astype("f4"))
    p.push_pull({"b": s.sum(0)}, n=len(y))
x, y = job.load(split="test")
p.pull()
predicted = (shades.pull(ids_of(x)).sum(1) + p["b"]).argmax(1)
print("accuracy", (predicted == y).mean(), flush=True)
job.save_model("model.npz")
"""


def trained(path):
    """The saved result of two trainers and two servers."""
    path.mkdir()
    script = path / "train.py"
    script.write_text(SCRIPT)
    variables = {contract.DATASET: "public/digits", contract.PASSES: "5", contract.TRAINERS: "2"}
    attempt = Attempt(path / "attempt", script, **variables, **{contract.PSERVERS: "2", contract.SEED: "7"})
    try:
        attempt.run(trainers=2, pservers=2)
        log = attempt.log("trainer-0")
        assert float(log.split("accuracy")[1].split()[0]) > 0.9, log
        with np.load(attempt.output / "model.npz") as model:
            return {name: model[name] for name in model.files}
    finally:
        attempt.close()


def test_two_trainers_and_two_servers_learn_an_embedding_to_the_same_bits_twice(tmp_path):
    first, second = (trained(tmp_path / name) for name in ("first", "second"))
    assert first["shades.ids"].tolist() == sorted(set(first["shades.ids"].tolist()))
    assert first["shades.rows"].shape == (first["shades.ids"].size, 10)
    assert digest(first) == digest(second)


def digest(model):
    return hashlib.sha256(b"".join(model[name].tobytes() for name in sorted(model))).hexdigest()
