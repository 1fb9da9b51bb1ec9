"""The protocol between trainers, master and parameter servers: frames, connections, a server and a client.

``frames`` is pure. A message is one head frame with a JSON body, followed by any number of block frames with raw
little-endian numbers. Nothing is pickled.
"""
