"""The HTTP API of agents: logs, metrics, reports, and what a replica downloads when it starts."""
