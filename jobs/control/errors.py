"""Errors of the control channel, each with a message for a person."""

from __future__ import annotations


class ControlError(Exception):
    """The agent of a replica has not answered. The text is a message for a person."""


class NotRunning(ControlError):
    """The replica does not run, or has just ended."""


class AgentTooOld(ControlError):
    """The replica runs, and its agent has no control channel."""


class Unreachable(ControlError):
    """The agent does not answer, or not in time, or is not the one that it should be."""


class Refused(ControlError):
    """The agent has refused the call. ``code`` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
