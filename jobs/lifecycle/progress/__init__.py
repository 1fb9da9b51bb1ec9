"""Progress of running jobs: stalls with their diagnosis, and slow trainers. Pure."""
