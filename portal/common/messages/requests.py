"""Messages of HTTP requests."""

from runtime.messages import Template as _
from runtime.messages import register

INPUT_INVALID = _("The input is not valid.")
REQUEST_TOO_LARGE = _(
    "The request exceeds the size limit. Sign in if you are not signed in, and send less data per request."
)
BODY_NESTED_TOO_DEEPLY = _(
    "The request body nests lists and objects more than {limit} levels deep. Reduce the nesting."
)
ADDRESS_NOT_FOUND = _("This address does not exist, or you do not have access to it. Check the address.")
ACTION_NOT_ALLOWED = _("Your account is not allowed to do this.")
TOO_MANY_REQUESTS = _("Too many requests. Wait a moment, then try again.")
REQUEST_NOT_STORABLE = _(
    "The request contains a character or a number that cannot be stored. Remove everything that is not text, and "
    "try again."
)
DATABASE_FULL = _(
    "The portal's database has no free space, so nothing was changed. Ask the operator of the portal to free some"
    " space."
)
DATABASE_UNAVAILABLE = _("The portal's database is not responding, so nothing was changed. Try again in a few seconds.")
DATABASE_MISSING = _("The portal's database cannot be reached.")
WRONG_PORT = _(
    "This port does not serve this address. Agents use the port in REGATTA_AGENT_PORT, and REGATTA_INGEST_URL names "
    "it; people use the port in PORT."
)
REPLICA_NOT_STARTED = _("{replica} could not be started: {why}")
LAUNCH_RETRIED = _("The launch is being retried.")
SIGNAL_NUMBER = _("signal {number}")
CURSOR_INVALID = _("The cursor is not valid for this list. Omit it to start from the beginning.")
LIMIT_INVALID = _("Enter a whole number from 1 to {most}.")
LENGTH_REQUIRED = _("Send the length of the body (Content-Length).")

register("requests", globals())
