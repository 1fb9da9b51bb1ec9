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
from portal.settings import DATA_DIR, DATABASES, PASSWORD_HASHERS

# A file, not memory: threads and child processes of a test see the same database, with the locks of the real one.
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["TEST"] = {"NAME": str(DATA_DIR / "test.sqlite3")}

# Most tests of accounts are about opening one; that it is off where jobs run on this machine is a test of its own.
SIGN_UP = "open"

# What costs much and is no business of a test: looking through all static files for every client, and hashing slowly.
WHITENOISE_AUTOREFRESH = True
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", *PASSWORD_HASHERS]

# Most tests start no job, and those that do say themselves how it is isolated.
LOCAL_ISOLATION = "none"
