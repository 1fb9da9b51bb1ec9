"""Terminals and commands in running replicas, over the websocket ``/ws/v1/exec`` (``jobs.live.exec_consumer``).

access      who may open one, and in which replica
requests    the query and the messages of a socket, checked
journal     rows in the audit log at the start and the end
recorder    records one connection
asciicast   the format of recordings; pure
recordings  recordings in the storage, counted in the quota
"""
