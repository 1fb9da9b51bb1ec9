"""Which release this is, and which clients it still speaks with. Told in the headers of every answer to a program."""

VERSION = "0.1.0"
# The oldest release of the `regatta` package that understands the API as it is.
OLDEST_CLIENT = "0.1.0"
