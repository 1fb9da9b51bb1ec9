import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.parameters.kernels.gradient_mean import Means, Weights


def arrays(count, size=1000, dtype="f4"):
    return [np.random.default_rng(number).normal(size=size).astype(dtype) for number in range(count)]


def by_definition(gradients, weights):
    mean = gradients[0] * gradients[0].dtype.type(weights[0])
    for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
        mean = mean + gradient * gradient.dtype.type(weight)
    return mean


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@given(samples=st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_every_mean_has_the_bits_of_its_definition(dtype, samples):
    gradients = arrays(len(samples), 50, dtype)
    weights = [number / sum(samples) for number in samples]
    mean = Means().weighted(gradients, Weights(weights))
    assert mean.tobytes() == by_definition(gradients, weights).tobytes()


def test_the_memory_of_a_mean_is_used_for_the_next_one():
    means = Means()
    large, small, weights = arrays(2, 100), arrays(2, 10), Weights([0.25, 0.75])
    made = [means.weighted(gradients, weights) for gradients in (large, small, large)]
    assert len({mean.ctypes.data for mean in made}) == 1
    assert [mean.size for mean in made] == [100, 10, 100]
