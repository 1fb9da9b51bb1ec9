"""Checkpoints of a shard, written while training continues."""
