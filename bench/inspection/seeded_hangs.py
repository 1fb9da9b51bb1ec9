"""The seeded hangs of row N5: what hangs, and what the event must name. Pure but for the ways to disturb a process.

All are the same job: two trainers, one parameter server, mode ``sync``. In most of them trainer-1 hangs in ``hang`` at
a step, and trainer-0 waits for its gradient.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.inspection import replica_processes

STALL_TIMEOUT_SECONDS = 20.0
REACHED = "reached"  # the line that trainer-1 prints when the hang begins
_HERE = "# here"

_SCRIPT = """\
import gc, os, re, socket, threading, time
import numpy as np
from runtime import dist

SIZE, STEPS = {size}, {steps}
job = dist.init()
params = job.params({{"w": np.zeros(SIZE, "f4")}}, opt=dist.SGD(0.1))
gradient = np.ones(SIZE, "f4")
step = 0


def hang():
{body}


def decode(record):
    if job.trainer == 1 and step >= STEPS:
        print("{reached}", flush=True)
        hang()
    return 0.0


for _ in job.steps(job.reader("public/digits", batch=64{reader})):
    step += 1
    time.sleep(0.02)
    if {in_loop} and job.trainer == 1 and step == STEPS:
        print("{reached}", flush=True)
        hang()
    params.push_pull({{"w": gradient}})
"""


@dataclass(frozen=True)
class Hang:
    """``body``: the statements of ``hang``, one of them marked ``# here``. ``words``: parts that the event's text must
    have; ``{line}`` is the marked line. ``outside``: a disturbance, as a context, instead of statements.

    ``impossible``: why this machine cannot seed it. ``disk``: the job runs on a small file system of its own.
    """

    name: str
    words: Sequence[str]
    body: str = "pass"
    replica: str = "trainer-1"
    outside: Callable[[Path], AbstractContextManager[None]] | None = None
    in_decode: bool = False
    disk: bool = False
    size: int = 16
    steps: int = 200
    impossible: str = ""

    @property
    def script(self) -> str:
        return _SCRIPT.format(
            size=self.size,
            steps=self.steps,
            body=textwrap.indent(self.body, "    "),
            reader=", decode=decode" if self.in_decode else "",
            in_loop=not self.in_decode,
            reached=REACHED,
        )

    @property
    def line(self) -> int:
        """The number of the marked line; 0: none is marked."""
        return next((number for number, text in enumerate(self.script.splitlines(), 1) if _HERE in text), 0)

    def is_named_by(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event of the kind ``stalled`` names the replica and all words."""
        words = [word.format(line=self.line) for word in self.words]
        return event["replica"] == self.replica and all(word in event["text"] for word in words)


HANGS: Sequence[Hang] = (
    Hang(
        "deadlock",
        ("train.py line {line} (hang)", "waits for a lock"),
        "lock = threading.Lock()\nlock.acquire()\nlock.acquire()  # here",
    ),
    Hang(
        "spin in C",
        ("trainer-1 does not respond at train.py line {line} (hang)",),
        're.match("(a*)*b", "a" * 60)  # here',
    ),
    Hang(
        "blocked pipe",
        ("train.py line {line} (hang)", "waits for a pipe"),
        "reading, writing = os.pipe()\nos.read(reading, 1)  # here",
    ),
    Hang(
        "swapped order of two pushes",
        ("the trainers wait for one another at different places",),
        replica="",
        impossible="a push of a trainer counts for the present step, wherever it is called",
    ),
    Hang(
        "dead file system",
        ("train.py line {line} (hang)", "waits for a file system"),
        'os.mkfifo("dead")  # opening it waits, as on a file server that is gone\nopen("dead").read()  # here',
    ),
    Hang("SIGSTOP", ("trainer-1 is stopped by a signal (SIGSTOP)",), outside=replica_processes.stopped),
    Hang(
        "full disk",
        ("the disk of trainer-1 is full", "train.py line {line} (hang)"),
        """\
with open("filler", "wb", buffering=0) as file:
    for _ in range(200):
        try:
            file.write(bytes(1 << 20))
        except OSError:
            time.sleep(600)  # here""",
        disk=True,
    ),
    Hang(
        "dropped packets",
        ("pserver-0 waits for requests: their packets do not arrive",),
        replica="pserver-0",
        outside=replica_processes.cut_off,
    ),
    Hang(
        "two-party wait",
        ("train.py line {line} (hang)", "waits for the network"),
        """\
ours, theirs = socket.socketpair()
threading.Thread(target=lambda: (theirs.recv(1), theirs.send(b"x")), daemon=True).start()
ours.recv(1)  # here""",
    ),
    Hang(
        "garbage collection storm",
        ("trainer-1 spends", "of its time in garbage collections"),
        "heap = [[number] for number in range(500_000)]\nwhile True:\n    gc.collect()",
    ),
    Hang(
        "stuck decode=",
        ("train.py line {line} (hang)", "waits for decode= of the reader"),
        "threading.Event().wait()  # here",
        in_decode=True,
    ),
    Hang(
        "overloaded server",
        ("pserver-0 is busy",),
        replica="pserver-0",
        outside=replica_processes.starved,
        size=30_000_000,
        steps=10,
    ),
)


def spec_of(name: str, script: str) -> dict[str, Any]:
    """Return the specification of the job of a script."""
    own = {"cpu": 0.2, "memory": "2Gi"}
    return {
        "name": name,
        "framework": "native",
        "entrypoint": "train.py",
        "files": {"train.py": script},
        "dataset": "public/digits",
        "passes": 10_000,
        "mode": "sync",
        "stall_timeout": f"{STALL_TIMEOUT_SECONDS:g}s",
        "roles": {"trainer": {"replicas": 2, **own}, "pserver": {"replicas": 1, **own}},
    }
