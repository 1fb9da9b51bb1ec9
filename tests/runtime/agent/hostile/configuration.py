"""Reads files of /etc that no job needs, by several paths. Files that libraries need have to be readable."""

import os
import pwd
import socket
import ssl
import time

reached = []
for path in (os.environ["CLOSED"], os.environ["SETTINGS"]):
    for way in (path, f"/proc/self/root{path}", f"/usr/..{path}"):
        try:
            with open(way, "rb") as file:
                file.read(1)
            reached.append(way)
        except OSError:
            pass
try:
    reached.append(f"list {len(os.listdir('/etc'))} names")
except OSError:
    pass
print("REACHED", *reached, sep="\n  ") if reached else print("HELD")

for name in ("passwd", "group", "hosts", "nsswitch.conf", "resolv.conf", "ld.so.cache"):
    with open(f"/etc/{name}", "rb") as file:
        file.read(1)
pwd.getpwuid(0)
socket.getaddrinfo("localhost", 80)
ssl.create_default_context().load_default_certs()
time.localtime()
print("libraries work", flush=True)
