"""User code for tests: good, slow, and faulty."""

from __future__ import annotations

import re
from typing import Any

# Trains for a while, or until the test releases it (``RunningPortal.release``). It numbers its lines, so that a reader
# can distinguish missing from doubled ones.
SLOW = """\
import os
import time
import numpy as np
from runtime import dist

def loss_and_grad(p, x, y):
    z = x @ p["w"]
    z -= z.max(1, keepdims=True)
    s = np.exp(z)
    s /= s.sum(1, keepdims=True)
    cost = -np.log(s[np.arange(len(y)), y]).mean()
    s[np.arange(len(y)), y] -= 1
    return cost, {"w": x.T @ (s / len(y))}

job = dist.init()
params = job.params({"w": np.zeros((64, 10), "f4")}, opt=dist.Momentum(0.1, 0.9))
step = 0
for x, y in job.steps(job.reader("public/digits", batch=64), passes=PASSES):
    cost, gradients = loss_and_grad(params, x, y)
    params.push_pull(gradients, n=len(y))
    job.report(cost=float(cost))
    step += 1
    print(f"step {step}", flush=True)
    if not os.path.exists("enough"):
        time.sleep(PAUSE)
print(f"steps {step}", flush=True)
job.save_model("model.npz")
"""

# Added after each step of an example until the test releases it (``RunningPortal.release``).
_PATIENCE = """
    if not os.path.exists("enough"):
        time.sleep(PAUSE)
"""

INIT = "from runtime import dist\njob = dist.init()\n"

RAISES = INIT + "learning_rate = {}['rate']\n"
EXITS_3 = INIT + "import sys\nprint('leaving', flush=True)\nsys.exit(3)\n"
PRINTS_100_000_LINES = INIT + "for n in range(1, 100_001):\n    print('line', n)\n"
NOT_UTF_8 = INIT + "import sys\nsys.stdout.buffer.write(b'before \\xff\\xfe after\\n')\nsys.stdout.flush()\n"
TEN_MEGABYTE_LINE = INIT + "print('x' * 10_000_000)\nprint('after the long line')\n"
NEVER_REGISTERS = "import time\nprint('waiting', flush=True)\ntime.sleep(600)\n"
# Its children sleep, and it stops at 3,000: a fork bomb that is safe for a test.
FORKS_WITHOUT_END = (
    INIT
    + "import os, time\nfor n in range(3000):\n    if os.fork() == 0:\n        time.sleep(600)\nprint('all 3000')\n"
)
# Exceeds a limit of threads or of their memory, and leaves the started ones behind.
STARTS_3000_THREADS = (
    INIT
    + "import threading, time\nfor n in range(3000):\n    threading.Thread(target=time.sleep, args=(600,)).start()\n"
)
SYNTAX_ERROR = "x = 1\nif x == 1\n    print(x)\n"


def job(name: str, code: str, *, trainers: int = 1, pservers: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a specification with one file."""
    return {
        "name": name,
        "framework": "native",
        "entrypoint": "train.py",
        "files": {"train.py": code},
        "dataset": "public/digits",
        "roles": {
            "trainer": {"replicas": trainers, "min": 1, "cpu": 1, "memory": "512Mi"},
            "pserver": {"replicas": pservers, "cpu": 1, "memory": "512Mi"},
        },
        **fields,
    }


def slow(name: str, *, passes: int = 8, pause: float = 0.1, trainers: int = 2) -> dict[str, Any]:
    """Return a job that trains for about ``passes * 40 * pause / trainers`` seconds, or until it is released."""
    code = SLOW.replace("PASSES", str(passes)).replace("PAUSE", str(pause))
    return job(name, code, trainers=trainers, passes=passes)


def unhurried(script: str, pause: float = 0.25) -> str:
    """Return the script of the example that reads digits, with a pause after each step until it is released."""
    begun = script.replace("import numpy", "import os, time\nimport numpy", 1)
    reported = "    job.report(cost=cost)\n"
    assert reported in begun
    return begun.replace(reported, reported + _PATIENCE.lstrip("\n").replace("PAUSE", str(pause)))


def shortened(example: dict[str, Any], passes: int) -> dict[str, Any]:
    """Return the example with fewer passes than its code names."""
    files = {name: re.sub(r"passes=\d+", f"passes={passes}", text) for name, text in example["files"].items()}
    return {**example, "files": files, "passes": passes}
