"""Parameters and optimiser state of a shard, their versions, and the copies that readers and checkpoints use."""
