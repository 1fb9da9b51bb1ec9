"""Isolation of user code on one machine: its own identity, its own view of files, and fewer system calls.

    probe        which of this the machine provides, and what to do where it does not
    launch       starts a command through the launcher
    launcher     the process that builds the view, drops all privileges and starts the command
    order        what the launcher is given
    view         which files the process sees, and where
    confinement  what a process gives up just before user code runs, with namespaces or without
    network      the network namespace of one attempt, and the process that keeps it
    delegation   the part of the cgroup tree that the portal may use
    cgroup       the cgroup of one replica: its limits and its end
    seccomp      the filter of system calls; pure
    landlock     the rules on files, signals and abstract sockets
    kernel       the system calls that Python has no name for

The launcher runs before every job, so it and what it imports avoid modules that are slow to load.
"""
