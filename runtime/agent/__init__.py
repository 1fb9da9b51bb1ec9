"""The agent: starts a replica's process, ships its output and points, holds its lease, and reports how it ended.

    python -m runtime.agent -- COMMAND...

The agent is configured only by the environment of ``runtime.contract``. Its modules, in the order of a run:

    settings       the environment, read once
    supervisor     runs one replica, from the lock to the last report
    child_process  starts the process with its limits and its own small environment; sandbox restricts its access
    process_tree   counts, measures and ends all processes that the process started
    child_channel  messages from and to the process; membership keeps the list of members that it gets
    line_splitter  splits stdout and stderr into lines; process_output limits them, and delivery.spool numbers them and
                   keeps them on disk
    delivery       sends the spools to the portal until they are accepted; ingest_client makes one call, artifacts
                   selects the files
    exit_status    describes how a process ended
"""
