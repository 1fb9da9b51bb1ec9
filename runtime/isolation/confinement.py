"""What a process gives up before it starts user code, within walls or without."""

from __future__ import annotations

import os

from runtime.isolation import kernel, seccomp


def confine(ruleset: int | None, alone: bool) -> None:
    """No new privileges, the rules of Landlock, the filter of system calls: for this process and all that it starts.
    Raises OSError."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if ruleset is not None:
        kernel.landlock_restrict(ruleset)
    kernel.install_filter(seccomp.program(os.uname().machine, alone))
