"""Periodic tasks of the sweep: compaction, garbage collection, retention."""
