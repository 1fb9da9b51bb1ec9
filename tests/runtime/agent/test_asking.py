"""The agent's questions to processes whose answers and descriptors are hostile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.agent.control import asking, processes
from runtime.agent.control.processes import Process
from runtime.inspection import inside


def test_a_file_put_in_place_of_the_memory_file_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process can exchange its descriptors between the search for the memory file and its opening."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    read_only = os.open(precious, os.O_RDONLY)
    found = Path(f"/proc/self/fd/{read_only}")
    monkeypatch.setattr(processes, "memory_file", lambda process: found)
    process = Process(os.getpid(), os.getpid(), "python", "S", 0, 1 << (inside.SIGNAL - 1))
    monkeypatch.setattr(processes, "send_signal", lambda process: precious.write_text("kept and written"))
    try:
        with pytest.raises(asking.NotInspectable):
            asking.dump(process, 0.1)
    finally:
        os.close(read_only)
    assert precious.read_text() == "kept"
