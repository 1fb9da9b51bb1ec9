"""The scaling policy: from nodes, jobs and services to numbers of trainers. Pure."""
