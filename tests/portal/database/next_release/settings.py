"""The portal's settings with the migrations of the next release."""

from portal.settings import *  # noqa: F403

MIGRATION_MODULES = {"jobs": "tests.portal.database.next_release.jobs_migrations"}
