"""The control channel between the portal and a running agent: frames, proof and connections.

The agent listens, the portal connects. Used by ``runtime.agent.control`` and by ``jobs.control``. Standard library
only.
"""
