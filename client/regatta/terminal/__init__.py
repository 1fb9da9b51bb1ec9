"""Terminal output: tables, charts and progress."""
