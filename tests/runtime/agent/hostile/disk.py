"""Fills the disk with files, with files that have been removed, or with nothing but names."""

import os
import time

kind, piece = os.environ["KIND"], bytes(2**20)
kept = []
for number in range(60 if kind != "names" else 20_000):
    where = f"{os.environ['TMPDIR'] if number % 2 else os.environ['REGATTA_OUTPUT_DIR']}/{number}"
    file = open(where, "wb")
    if kind == "names":
        file.close()
        continue
    file.write(piece)
    file.flush()
    if kind == "removed":
        os.unlink(where)
        kept.append(file)
time.sleep(8)
print("REACHED 60 MiB", flush=True)
