"""Peer of R1 and R2: one worker of a synchronous step with PyTorch's gloo. Runs in the peer's own Python.

Reads the number of steps from standard input, one line per round, and prints the seconds of one step.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist


def main(elements: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    workers = dist.get_world_size()
    parameters, made = torch.zeros(elements), torch.full((elements,), 1e-3)
    gradient = torch.empty(elements)
    print("ready", flush=True)
    for line in sys.stdin:
        spent = 0.0
        for _ in range(int(line)):
            gradient.copy_(made)  # written by the model in a training; not part of the step
            dist.barrier()
            begun = time.perf_counter()
            dist.all_reduce(gradient)
            parameters.add_(gradient, alpha=-0.1 / workers)
            spent += time.perf_counter() - begun
        print(spent / int(line), 0, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]))
