"""The audit log: writing, queries, and the database triggers that protect it."""
