"""Recognise handwritten digits with PaddlePaddle, collectively: workers train on shares and average the gradients."""

import os
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as parallel
from paddle import nn

from runtime import dist

DATASET = os.environ.get("REGATTA_DATASET") or "public/digits"
OUTPUT = Path(os.environ.get("REGATTA_OUTPUT_DIR", "."))
PASSES = int(os.environ.get("REGATTA_PASSES", "10"))

paddle.set_device("cpu")
parallel.init_parallel_env()
rank, size = parallel.get_rank(), parallel.get_world_size()
print(f"worker {rank} of {size}", flush=True)

job = dist.init()
batches = list(job.steps(job.reader(DATASET, batch=32), passes=1))
batches = batches[: len(batches) // size * size]  # all workers make the same number of steps

paddle.seed(1)
model = paddle.DataParallel(
    nn.Sequential(nn.Conv2D(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2D(2), nn.Flatten(), nn.Linear(128, 10))
)
optimizer = paddle.optimizer.Adam(0.003, parameters=model.parameters())
step = 0
for _ in range(PASSES):
    for images, digits in batches[rank::size]:
        score = model(paddle.to_tensor(images.reshape(-1, 1, 8, 8)))
        loss = nn.functional.cross_entropy(score, paddle.to_tensor(np.asarray(digits, "int64")))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        step += 1
        if step % 10 == 0:
            # A printed cost becomes a point of the curve.
            print(f"step {step}, cost: {float(loss):.5f}", flush=True)

if rank == 0:
    paddle.save(model.state_dict(), str(OUTPUT / "model.pdparams"))
    print("saved the model")
