"""The client of the master: tasks, their prefetching, and reading their records as batches."""
