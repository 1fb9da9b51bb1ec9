"""Fit a line: how far diabetes has progressed after a year, from ten measurements of a patient.

Linear regression by gradient descent. The same script runs alone (python train.py) and as many trainers.
"""

import numpy as np

from runtime import dist

job = dist.init()

# Standardise: every measurement and the target get mean 0 and variance 1 over the training records.
x, y = job.load("public/diabetes", split="train")
x_mean, x_scale = x.mean(axis=0), x.std(axis=0)
y_mean, y_scale = y.mean(), y.std()

p = job.params({"w": np.zeros(x.shape[1], "float32"), "b": np.zeros(1, "float32")}, opt=dist.SGD(lr=0.005))


def predict(x):
    """Measurements of shape (n, 10) -> predictions (n,), both standardised."""
    return x @ p["w"] + p["b"]


def report_progress(event):
    """Print a line to the log every ten passes. Each trainer prints its own."""
    if event.pass_id % 10 == 9:
        print(f"pass {event.pass_id + 1}: cost {event.metrics['cost']:.4f}")


job.on(dist.EndPass, report_progress)

for patients, targets in job.steps(job.reader("public/diabetes", batch=8, shuffle=1024), passes=60):
    x, y = (patients - x_mean) / x_scale, (targets - y_mean) / y_scale
    error = predict(x) - y
    cost = np.mean(error**2)
    p.push_pull({"w": 2 * x.T @ error / len(y), "b": 2 * error.mean(keepdims=True)}, n=len(y))
    job.report(cost=cost)

# One trainer is chosen to save the model. It also reports the error of the line on patients not used in training.
if job.save_model("model.npz"):
    x, y = job.load("public/diabetes", split="test")
    error = predict((x - x_mean) / x_scale) * y_scale + y_mean - y
    rmse = np.sqrt(np.mean(error**2))
    r2 = 1 - np.sum(error**2) / np.sum((y - y.mean()) ** 2)
    job.report(test_rmse=rmse, test_r2=r2)
    print(f"test RMSE: {rmse:.1f}, R2: {r2:.3f}")
