"""The portal's settings with a data directory and a database of the test run's own."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

if "REGATTA_DATA_DIR" not in os.environ:
    os.environ["REGATTA_DATA_DIR"] = tempfile.mkdtemp(prefix="regatta-tests-")
    atexit.register(shutil.rmtree, os.environ["REGATTA_DATA_DIR"], ignore_errors=True)

from portal.settings import *  # noqa: F403
from portal.settings import DATA_DIR, DATABASES

# A file, not memory: threads and child processes of a test see the same database, with the locks of the real one.
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["TEST"] = {"NAME": str(DATA_DIR / "test.sqlite3")}
