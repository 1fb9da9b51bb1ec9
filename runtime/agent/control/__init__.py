"""The agent's end of the control channel: it listens, the portal connects.

To add a call, write a handler (``calls.Handler``) in a module of this package and name it in ``calls.CALLS``.
"""
