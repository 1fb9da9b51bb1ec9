"""The running controller: leader election, workers, execution of actions, events, health."""
