"""What the command prints: tables, charts and progress."""
