"""Byte streams between the portal and servers that user code runs in the replica.

opening  opens a socket to a server in the replica
relay    passes bytes on in both directions
handler  the call ``connect`` of the control channel
"""
