"""Sign-in: passwords, sessions, second factor, registration, external providers, the command."""
