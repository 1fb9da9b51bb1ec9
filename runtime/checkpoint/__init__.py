"""Checkpoints of parameter servers: files that are whole or not there, and a record of which of them count."""
