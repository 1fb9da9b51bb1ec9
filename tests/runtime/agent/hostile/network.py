"""Connects to servers of the machine, by loopback and by its other addresses, and to the services of a cloud."""

import os
import socket

reached = []
port = int(os.environ["PORT"])
for host in ("127.0.0.1", "127.0.0.2", "::1", os.environ["HOST"]):
    for each in (port, 80):
        try:
            socket.create_connection((host, each), 2).close()
            reached.append(f"{host} {each}")
        except OSError:
            pass
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
    for host in ("169.254.169.254", "192.0.2.1"):
        try:
            link.connect((host, 80))  # sends nothing; it only selects a route
            reached.append(f"route to {host}")
        except OSError:
            pass
try:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect("\0" + os.environ["ABSTRACT"])
        reached.append("abstract socket")
except OSError:
    pass
reached += [name for _, name in socket.if_nameindex() if name != "lo"]
print("REACHED", *reached, sep="\n  ") if reached else print("HELD")
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 2):
    print("loopback works", flush=True)
