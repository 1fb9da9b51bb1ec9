"""Read-only queries of jobs and attempts."""
