"""Follower of the logs of processes without an agent.

``cursor.py`` (pure) computes how far a log was read, ``follower.py`` follows one log, ``ingest.py`` stores what was
read, and ``pool.py`` starts a follower for every such replica.
"""
