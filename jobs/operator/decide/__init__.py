"""Decisions of the controller about a PaddleJob: the next actions and the status. Pure."""
