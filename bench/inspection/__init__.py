"""N: looking into running processes."""
