"""Pages of jobs and of the cluster."""
