"""Load of many jobs on the portal's real processes: simulated replicas and browsers, and meters of the processes."""
