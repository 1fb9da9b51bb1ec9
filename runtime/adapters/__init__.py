"""Other libraries' models as parameters of a job. Each module imports its library, so import only the one you use."""
