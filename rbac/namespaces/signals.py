"""The signal that a namespace is closing. Apps on which ``rbac`` does not depend may object."""

from __future__ import annotations

from django.dispatch import Signal

# Sent with ``namespace`` inside the transaction, its row locked. A receiver that raises Conflict keeps it open.
namespace_closing = Signal()
