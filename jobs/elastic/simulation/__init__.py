"""A discrete-event simulator for policies, with workloads and measures. Pure."""
