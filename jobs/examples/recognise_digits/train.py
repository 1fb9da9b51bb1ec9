"""Recognise handwritten digits with a small neural network, its gradients written out in NumPy.

The same script runs alone (python train.py) and as many trainers that share their parameters.
"""

import numpy as np

from runtime import dist

PIXELS, HIDDEN, DIGITS = 64, 64, 10


def forward(p, x):
    """Images of shape (n, 64) -> the hidden layer (n, 64) and the probability of each digit (n, 10)."""
    hidden = np.maximum(x @ p["w1"] + p["b1"], 0)
    scores = hidden @ p["w2"] + p["b2"]
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, e / e.sum(axis=1, keepdims=True)


def loss_and_grad(p, x, y):
    """Return the mean cross-entropy of a batch, and the gradient of every parameter."""
    rows = np.arange(len(y))
    hidden, probability = forward(p, x)
    cost = -np.log(probability[rows, y] + 1e-9).mean()

    d_scores = probability.copy()
    d_scores[rows, y] -= 1
    d_scores /= len(y)
    d_hidden = (d_scores @ p["w2"].T) * (hidden > 0)
    return cost, {
        "w1": x.T @ d_hidden,
        "b1": d_hidden.sum(axis=0),
        "w2": hidden.T @ d_scores,
        "b2": d_scores.sum(axis=0),
    }


job = dist.init()

rng = np.random.default_rng(job.seed)
p = job.params(
    {
        "w1": rng.normal(0, 0.1, (PIXELS, HIDDEN)).astype("float32"),
        "b1": np.zeros(HIDDEN, "float32"),
        "w2": rng.normal(0, 0.1, (HIDDEN, DIGITS)).astype("float32"),
        "b2": np.zeros(DIGITS, "float32"),
    },
    opt=dist.Momentum(lr=0.01, mu=0.9),
)


def report_progress(event):
    """Print a line to the log every ten passes. Each trainer prints its own."""
    if event.pass_id % 10 == 9:
        print(f"pass {event.pass_id + 1}: cost {event.metrics['cost']:.4f}")


job.on(dist.EndPass, report_progress)

# Each trainer reads its share of the images. push_pull sends the gradients and returns the new parameters.
for x, y in job.steps(job.reader("public/digits", batch=16, shuffle=1024), passes=80):
    cost, grads = loss_and_grad(p, x, y)
    p.push_pull(grads, n=len(y))
    job.report(cost=cost)

# One trainer is chosen to save the model. It also reports the accuracy on images not used in training.
if job.save_model("model.npz"):
    x, y = job.load("public/digits", split="test")
    accuracy = np.mean(forward(p, x)[1].argmax(axis=1) == y)
    job.report(test_accuracy=accuracy)
    print(f"test accuracy: {accuracy:.3f}")
