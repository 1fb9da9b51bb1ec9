"""Checkpoints of parameter servers: files that are complete or absent, and a record of those that count."""
