"""Peer of R3: PyTorch's fused optimisers on one thread. Runs in the peer's own Python.

Reads a rule and a number of elements from standard input, one line per round, and prints the seconds of one update.
"""

from __future__ import annotations

import sys
import time
from functools import cache
from typing import Any

import torch

REPEAT = 3


@cache
def optimiser(rule: str, elements: int) -> Any:
    parameter = torch.zeros(elements, requires_grad=True)
    parameter.grad = torch.full((elements,), 1e-3)
    if rule == "Adam":
        return torch.optim.Adam([parameter], lr=1e-3, fused=True)
    return torch.optim.SGD([parameter], lr=1e-3, momentum=0.9 if rule == "Momentum" else 0.0, fused=True)


def main() -> None:
    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        rule, elements = line.split()
        one = optimiser(rule, int(elements))
        begun = time.perf_counter()
        for _ in range(REPEAT):
            one.step()
        print((time.perf_counter() - begun) / REPEAT, flush=True)


if __name__ == "__main__":
    main()
