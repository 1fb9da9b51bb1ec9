"""HTTP API of agents: logs, metrics, reports, and the downloads of a replica at its start."""
