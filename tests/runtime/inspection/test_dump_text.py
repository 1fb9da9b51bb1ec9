"""The text of ``faulthandler`` as threads."""

from __future__ import annotations

import faulthandler
import tempfile

from hypothesis import given
from hypothesis import strategies as st

from runtime.inspection.dump_text import FRAMES, THREADS, DumpedThread, parse

DUMP = """Thread 0x00007f5c3effd6c0 (most recent call first):
  File "/work/data.py", line 12 in read

Current thread 0x00007f5c4f8b9740 (most recent call first):
  File "/work/train.py", line 3 in inner
  File "/work/train.py", line ??? in <module>
"""


def test_threads_and_frames_are_read_innermost_first() -> None:
    assert parse(DUMP) == [
        DumpedThread(0x7F5C3EFFD6C0, (("/work/data.py", 12, "read"),)),
        DumpedThread(0x7F5C4F8B9740, (("/work/train.py", 3, "inner"), ("/work/train.py", 0, "<module>"))),
    ]


def test_what_this_python_writes_is_understood() -> None:
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        found = parse(file.read().decode())
    assert "test_what_this_python_writes_is_understood" in [frame[2] for frame in found[-1].frames]


def test_of_two_dumps_the_last_counts() -> None:
    again = DUMP.replace("line 12 in read", "line 13 in read")
    assert [thread.frames[0][1] for thread in parse(DUMP + again)] == [13, 3]


@given(st.text(max_size=500) | st.text(alphabet='Thread 0x1f(mostcalfi):\n  File"",linen', max_size=500))
def test_any_text_gives_threads_within_the_limits(text: str) -> None:
    found = parse(text)
    assert len(found) <= THREADS
    assert all(len(thread.frames) <= FRAMES for thread in found)


def test_a_flood_of_threads_and_frames_is_cut() -> None:
    threads = "".join(f"Thread 0x{number:x} (most recent call first):\n" for number in range(1, 1000))
    assert len(parse(threads)) == THREADS
    frames = DUMP + '  File "/work/train.py", line 1 in f\n' * 1000
    assert len(parse(frames)[-1].frames) == FRAMES
