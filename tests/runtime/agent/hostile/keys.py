"""Lists the keys of the kernel that /proc shows: their descriptions name what other programs of the user store."""

import ctypes
import os
import platform

NAME = os.environ["NAME"].encode()
ADD_KEY, KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}[platform.machine()]
USER_KEYRING, SET_TIMEOUT = -4, 15

libc = ctypes.CDLL(None)
key = libc.syscall(ADD_KEY, b"user", NAME, b"secret", ctypes.c_size_t(6), USER_KEYRING)
if key > 0:
    libc.syscall(KEYCTL, SET_TIMEOUT, key, 120)
found = []
for path in ("/proc/keys", "/proc/key-users"):
    try:
        with open(path, "rb") as file:
            found += file.read().splitlines()
    except OSError:
        pass
print(f"REACHED {found!r}" if found else "HELD", flush=True)
