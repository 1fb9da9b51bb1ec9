"""Terminals and commands in the sandbox of a replica, with the same rights as its process.

output_buffer   the last output of a terminal, read after a cursor; pure
guest           starts a program inside the replica's sandbox
session         one terminal: a shell, its viewers and its end
sessions        the terminals of a replica, found by their ids
handlers        the calls ``terminal`` and ``exec`` of a frame connection
frames          the connection that the handlers use
"""
