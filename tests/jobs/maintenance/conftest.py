"""What the tests of streams write with."""

from tests.jobs.streams.conftest import writer

__all__ = ["writer"]
