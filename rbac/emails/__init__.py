"""E-mails: templates, the queue that sends them, and the record of failures."""
