"""Isolation of user code on one machine: its own identity, its own view of files, and fewer system calls.

    probe           tests which isolation the machine provides, and names what to do if something is missing
    launch          starts a command through the launcher
    launcher        the process that builds the view, drops all privileges and starts the command
    launch_request  the order that the launcher gets
    gpu_devices     device files of the GPUs of a replica
    view            which files the process sees, and where
    confinement     what a process gives up just before user code runs, with namespaces or without
    network         the network namespace of one attempt, and the process that holds it
    delegation      the part of the cgroup tree that the portal may use
    cgroup          the cgroup of one replica: its limits and its end
    seccomp         the filter of system calls; pure
    landlock        the rules on files, signals and abstract sockets
    syscalls        system calls that Python has no function for

The launcher runs before every job, so it and its imports avoid modules that are slow to load.
"""
