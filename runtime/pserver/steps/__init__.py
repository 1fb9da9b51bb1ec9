"""Steps of synchronous and asynchronous training, from the arrival of gradients to the next version."""
