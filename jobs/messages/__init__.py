"""Catalogues of the messages of jobs: of jobs and attempts, specifications, elastic scaling, cluster and images."""
