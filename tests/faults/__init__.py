"""Harm is done to the processes of real jobs, and what they did and saw is judged.

``cluster``      the replicas of one job under real agents, and what can be done to them
``proxy``        the network between them, with its weather
``workloads``    what trainers do; ``witness`` what a parameter server does, with failing disks
``history``      what all of them write down
``invariants``   what must hold of every history (I1 to I12); ``verdict`` which of them concern a job
``simulation``   the pure machines behind a network that exists in memory alone
"""
