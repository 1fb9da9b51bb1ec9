"""Fault injection into the processes of real jobs, and checks of their recorded histories.

``cluster``      the replicas of one job under real agents, and the faults of them
``proxy``        the network between them, with its weather
``workloads``    what trainers do; ``witness`` what a parameter server does, with failing disks
``history``      what all of them record
``invariants``   what must hold of every history (I1 to I12); ``verdict`` which of them concern a job
``simulation``   the pure machines behind a network that exists in memory alone
"""
