"""The agent: starts one replica's process, ships what it prints and measures, holds its lease, and says how it ended.

    python -m runtime.agent -- COMMAND...

Configured by the environment of ``runtime.contract`` alone. A job's way through it:

    settings     the environment, read once
    supervision  the life of one replica, from the lock to the last report
    child        starts the process with its limits and its own small environment; sandbox narrows what it may see
    processes    counts, watches and ends all that the process started
    link         messages from and to the process; membership is what it is told
    output       bytes of stdout and stderr become lines; spool numbers and keeps them on disk
    shipping     sends the spools to the portal, for as long as that takes; ingest is one call, artifacts the files
    endings      how a process ended, in words
"""
