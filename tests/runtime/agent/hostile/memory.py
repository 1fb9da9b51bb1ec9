"""Memory that no process has mapped: a file in /dev/shm, or a file that only a descriptor names."""

import os
import sys
import time

kind, piece = os.environ["KIND"], bytes(2**20)
if kind == "shm":
    target = os.open(f"/dev/shm/{os.environ['NAME']}", os.O_RDWR | os.O_CREAT)
else:
    target = os.memfd_create("hidden")
try:
    for _ in range(300):
        os.write(target, piece)
    time.sleep(5)
    print("REACHED 300 MiB")
except OSError as error:
    print("HELD", error)
    time.sleep(5)
sys.stdout.flush()
