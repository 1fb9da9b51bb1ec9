"""Confinement of a process just before it starts user code, with namespaces or without."""

from __future__ import annotations

import os

from runtime.isolation import seccomp, syscalls


def confine(ruleset: int | None, alone: bool) -> None:
    """Apply no-new-privileges, the Landlock rules and the system call filter to this process and all that it starts.

    Raises OSError.
    """
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if ruleset is not None:
        syscalls.landlock_restrict(ruleset)
    syscalls.install_filter(seccomp.program(os.uname().machine, alone))
