"""The history of all processes of a fault test, and the conclusions from it."""
