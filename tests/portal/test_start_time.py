"""The processes of a portal do not import libraries that only some installations use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_IMPORT = """
import sys
import django
django.setup()
import jobs.tasks
import portal.asgi
import portal.management.commands.serve
import portal.management.commands.sweep
import portal.management.commands.up
import portal.management.commands.work
print(*(name for name in ("redis", "opentelemetry.sdk") if name in sys.modules))
"""


def test_without_their_settings_neither_redis_nor_traces_are_imported(tmp_path: Path) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))}
    own |= {"DJANGO_SETTINGS_MODULE": "portal.settings", "REGATTA_DATA_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", _IMPORT], cwd=ROOT, env=own, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
