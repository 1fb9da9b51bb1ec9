"""HTTP API of jobs, for people and programs."""
