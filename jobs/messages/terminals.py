"""Messages of terminals and commands in replicas."""

from runtime.messages import Template as _
from runtime.messages import register

NO_REPLICA_RUNS = _("No trainer of this job is running. A terminal needs a running replica.")
REPLICA_UNKNOWN = _("This attempt has no replica {name}.")
REPLICA_ENDED = _("{name} has ended. A terminal needs a running replica.")
IMPERSONATED = _("You are viewing the portal as another account. Terminals are not available then.")
RECORDING_NOT_FOUND = _("The job has no such recording.")
REPLICA_CONNECTION_LOST = _("The connection to {name} was lost. The shell goes on; connect again.")

register("terminals", globals())
