"""The version of this release and of the oldest client that it supports, as sent in the headers of every API
response."""

VERSION = "0.1.0"
# The oldest release of the `regatta` package that supports the current API.
OLDEST_CLIENT = "0.1.0"
