"""Adapter for PyTorch modules as parameters of a job: ``from runtime.adapters import torch as dist_torch``.

    job = dist.init()
    model = torch.nn.Linear(64, 10)
    shared = dist_torch.attach(job, model, opt=dist.Adam(1e-3))
    for x, y in job.steps(job.reader("public/digits", batch=64), passes=5):
        loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        shared.step(n=len(y))
        job.report(cost=loss.item())

The tensors' own memory is pushed and pulled, without a copy. Buffers, such as the running mean of a batch norm, are not
shared: each trainer has its own.

With ``overlap`` the gradient of a layer is sent as soon as the backward pass has computed it, while the gradients of
the layers before it are still being computed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from runtime.errors import UsageError
from runtime.messages import training as messages
from runtime.parameters.optimisers import Optimiser
from runtime.trainer.job import Job
from runtime.trainer.params import Params


class Shared:
    """A module whose parameters are shared in a job. Created by ``attach``."""

    def __init__(self, params: Params, tensors: dict[str, Any], overlap: bool = False) -> None:
        self.params = params
        self._tensors = tensors
        self._zeros: dict[str, NDArray[Any]] = {}
        self._staged: dict[str, int] = {}  # torch's version of each staged gradient, which counts its changes
        for name, tensor in tensors.items() if overlap else ():
            tensor.register_post_accumulate_grad_hook(partial(self._stage, name))

    def step(self, n: int = 1) -> int:
        """Push the gradients of ``backward``, means over ``n`` samples, then pull. Return the version.

        Replaces ``optimizer.step()`` and ``zero_grad()``. A parameter that had no part in the loss counts with a
        gradient of zero. Raises UsageError.
        """
        for name in self._staged:
            if (changed := self._tensors[name]).grad is not None and changed.grad._version != self._staged[name]:
                self._stage(name, changed)
        self._staged = {}
        version = self.params.push_pull({name: self._gradient(name) for name in self._tensors}, n)
        for tensor in self._tensors.values():
            tensor.grad = None
        return version

    def _stage(self, name: str, tensor: Any) -> None:
        """Stage a parameter's gradient, which the backward pass has computed."""
        self._staged[name] = tensor.grad._version
        self.params.stage(name, self._gradient(name))

    def _gradient(self, name: str) -> NDArray[Any]:
        gradient = self._tensors[name].grad
        if gradient is not None:
            array: NDArray[Any] = gradient.detach().numpy()
            return array
        if name not in self._zeros:
            self._zeros[name] = np.zeros_like(self.params[name])
        return self._zeros[name]


def attach(
    job: Job,
    model: torch.nn.Module,
    opt: Optimiser | None = None,
    mode: str | None = None,
    wire: str | None = None,
    overlap: bool = False,
) -> Shared:
    """Share the trainable parameters of ``model``. The arguments are those of ``job.params``.

    ``overlap`` sends gradients during the backward pass. Between it and ``step``, gradients may be changed by
    operations that torch counts (``clip_grad_norm_``; such a gradient is sent again), and not through ``.data``.

    Afterwards all trainers have the same values. Raises UsageError for a model that is not on the CPU.
    """
    tensors = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    if elsewhere := [name for name, tensor in tensors.items() if tensor.device.type != "cpu"]:
        where = tensors[elsewhere[0]].device
        raise UsageError(messages.PARAMETER_DEVICE_WRONG(name=f"{elsewhere[0]!r}", device=where))
    arrays = {name: _array(tensor) for name, tensor in tensors.items()}
    return Shared(job.params(arrays, opt, mode, wire=wire), tensors, overlap)


def _array(tensor: Any) -> NDArray[Any]:
    """Return the memory of a parameter, made contiguous first because pulls write into it."""
    tensor.data = tensor.data.contiguous()
    if tensor.dtype not in (torch.float32, torch.float64):
        raise UsageError(messages.MODEL_TYPE_WRONG(type=tensor.dtype))
    array: NDArray[Any] = tensor.detach().numpy()
    return array
