"""The end of a namespace. Rooms that this one does not know may object to it."""

from __future__ import annotations

from django.dispatch import Signal

# Sent with ``namespace`` inside the transaction, its row locked. A receiver that raises Conflict keeps it open.
namespace_closing = Signal()
