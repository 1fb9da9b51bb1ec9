"""Recognise handwritten digits with PaddlePaddle's parameter servers (fleet, asynchronous).

Servers and trainers run this same file; fleet reads its role from the environment.
"""

import os
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed.fleet as fleet

from runtime import dist

BATCH = 16
DATASET = os.environ.get("REGATTA_DATASET") or "public/digits"
OUTPUT = Path(os.environ.get("REGATTA_OUTPUT_DIR", "."))
PASSES = int(os.environ.get("REGATTA_PASSES", "20"))

paddle.enable_static()
fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))

image = paddle.static.data("image", [None, 64], "float32")
label = paddle.static.data("label", [None, 1], "int64")
hidden = paddle.static.nn.fc(image, 32, activation="relu")
score = paddle.static.nn.fc(hidden, 10)
cost = paddle.mean(paddle.nn.functional.cross_entropy(score, label))
model = paddle.static.default_main_program().clone(for_test=True)

strategy = fleet.DistributedStrategy()
strategy.a_sync = True
fleet.distributed_optimizer(paddle.optimizer.SGD(0.05), strategy).minimize(cost)


def read(share, shares):
    """Return this trainer's share of the data: images (n, 64) and digits (n,)."""
    job = dist.init()
    batches = list(job.steps(job.reader(DATASET, batch=BATCH), passes=1))[share::shares]
    return np.concatenate([x for x, _ in batches]), np.concatenate([y for _, y in batches])


def write(path, images, digits):
    """Write the text format of Paddle's datasets: one record per line, with a count and its numbers for every input."""
    with Path(path).open("w") as out:
        for x, y in zip(images, digits, strict=True):
            out.write("64 " + " ".join(f"{v:.4f}" for v in x) + f" 1 {int(y)}\n")


def train():
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()

    images, digits = read(fleet.worker_index(), fleet.worker_num())
    part = f"part-{fleet.worker_index()}.txt"
    write(part, images, digits)
    data = paddle.distributed.QueueDataset()
    data.init(batch_size=BATCH, thread_num=1, use_var=[image, label], pipe_command="cat")
    data.set_filelist([part])

    program = paddle.static.default_main_program()
    for number in range(PASSES):
        # Every line "batch: [20], cost[1]:[0.69]" that Paddle prints becomes a point of the curve.
        executor.train_from_dataset(program, data, fetch_list=[cost], fetch_info=["cost"], print_period=20)
        print(f"pass {number + 1} of {PASSES}", flush=True)

    fleet.barrier_worker()
    if fleet.is_first_worker():
        paddle.static.save_inference_model(str(OUTPUT / "model"), [image], [score], executor, program=model)
        print("saved the model", flush=True)
    fleet.stop_worker()


if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    train()
