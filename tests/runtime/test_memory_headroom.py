import resource
import subprocess
import sys

import pytest

from runtime.memory_headroom import headroom

LIMIT = 1 << 30
SCRIPT = f"""
import resource
from runtime.memory_headroom import headroom
resource.setrlimit(resource.RLIMIT_DATA, ({LIMIT}, {LIMIT}))
before = headroom()
taken = bytearray(100 << 20)
print(before, headroom())
"""


def test_headroom_shrinks_by_allocated_memory():
    completed = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    before, after = map(float, completed.stdout.split())
    assert LIMIT / 2 < before < LIMIT
    assert before - after == pytest.approx(100 << 20, rel=0.05)


def test_without_a_limit_there_is_no_end(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert headroom() == float("inf")
