"""Training from a notebook: code becomes a job, and the job is watched in the cell."""
