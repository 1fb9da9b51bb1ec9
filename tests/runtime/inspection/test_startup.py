"""The start of a Python process that can be inspected leaves the program as it would be without that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime import contract

pytestmark = pytest.mark.processes
ROOT = Path(contract.__file__).parent.parent
STARTUP = ROOT / "runtime" / "inspection" / "startup"


def shown(directory: Path, program: str, before: str = "") -> str:
    """Return what the program prints, started by Python or by a shell that runs ``before`` first."""
    (directory / "program.py").write_text(program)
    (directory / "sockets").mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        contract.INSPECTION: str(directory / "sockets"),
        "PYTHONPATH": os.pathsep.join((str(STARTUP), str(ROOT))),
    }
    command = ["sh", "-c", f'{before} exec "$@"', "sh", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_program_imports_its_own_module_named_as_the_platforms(tmp_path: Path) -> None:
    (tmp_path / "runtime.py").write_text("mine = True")
    assert shown(tmp_path, "import runtime; print(runtime.mine)") == "True"


def test_the_start_does_not_import_what_takes_long(tmp_path: Path) -> None:
    assert shown(tmp_path, "import sys; print('typing' in sys.modules, 'json' in sys.modules)") == "False True"


def test_a_program_with_few_descriptors_keeps_them(tmp_path: Path) -> None:
    program = "import os; print(sorted(os.listdir('/proc/self/fd'))[:-1])"
    assert shown(tmp_path, program, "ulimit -n 100;") == "['0', '1', '2']"
