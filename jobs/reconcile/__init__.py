"""The reconciler, its effects, admission and the sweep. This package is the only writer of job states."""
