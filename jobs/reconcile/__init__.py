"""The only writer of job states: the reconciler, its effects, admission and the sweep."""
