"""Fixtures of the tests of streams."""

from tests.jobs.streams.conftest import writer

__all__ = ["writer"]
