"""The pages of jobs and of the cluster."""
