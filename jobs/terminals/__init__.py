"""Terminals and commands in running replicas, over the websocket ``/ws/v1/exec``.

access      who may open one, and in which replica
consumer    the websocket: relays frames between a person and the agent
requests    the query and the messages of a socket, checked
journal     rows in the audit log at the start and the end
asciicast   the format of recordings; pure
recordings  recordings in the storage, counted in the quota
"""
