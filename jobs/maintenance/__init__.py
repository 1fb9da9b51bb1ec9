"""Periodic tasks of the sweep: compaction, garbage collection and retention."""
