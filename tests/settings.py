"""The portal's settings with a data directory and a database of the test run."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

if "REGATTA_DATA_DIR" not in os.environ:
    os.environ["REGATTA_DATA_DIR"] = tempfile.mkdtemp(prefix="regatta-tests-")
    atexit.register(shutil.rmtree, os.environ["REGATTA_DATA_DIR"], ignore_errors=True)

from portal.settings import *  # noqa: F403
from portal.settings import DATA_DIR, DATABASES, PASSWORD_HASHERS

# A file, not memory: threads and child processes of a test use the same database, with its real locks.
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["TEST"] = {"NAME": str(DATA_DIR / "test.sqlite3")}
else:
    # Tests copy and drop databases, which must have no connection then.
    DATABASES["default"]["POOL_SIZE"] = 0

# Most account tests open one; a separate test covers that sign-up is off where jobs run on this machine.
SIGN_UP = "open"

# Expensive and irrelevant for tests: searching all static files for every client, and slow password hashes.
WHITENOISE_AUTOREFRESH = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", *PASSWORD_HASHERS]

# Most tests start no job; those that do configure isolation themselves.
LOCAL_ISOLATION = "none"
