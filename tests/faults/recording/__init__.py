"""The history of all processes of a fault test, and what is concluded from it."""
