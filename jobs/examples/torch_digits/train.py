"""Recognise handwritten digits with PyTorch: every process trains on its share of the data, gradients are averaged."""

import os
from pathlib import Path

import torch
import torch.distributed as parallel
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runtime import dist

DATASET = os.environ.get("REGATTA_DATASET") or "public/digits"
OUTPUT = Path(os.environ.get("REGATTA_OUTPUT_DIR", "."))
PASSES = int(os.environ.get("REGATTA_PASSES", "10"))

parallel.init_process_group("gloo")
rank, size = parallel.get_rank(), parallel.get_world_size()
print(f"process {rank} of {size}", flush=True)

job = dist.init()
batches = list(job.steps(job.reader(DATASET, batch=32), passes=1))
batches = batches[: len(batches) // size * size]  # all processes make the same number of steps

torch.manual_seed(1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
step = 0
for _ in range(PASSES):
    for images, digits in batches[rank::size]:
        loss = nn.functional.cross_entropy(model(torch.tensor(images)), torch.tensor(digits, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 5 == 0:
            # A printed cost becomes a point of the curve.
            print(f"step {step} cost {loss.item():.5f}", flush=True)

if rank == 0:
    torch.save(model.module.state_dict(), OUTPUT / "model.pt")
    print("saved the model")
parallel.destroy_process_group()
