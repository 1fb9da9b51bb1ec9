"""The master's client: tasks, their prefetching, and reading their records as batches."""
