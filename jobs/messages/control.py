"""Messages about connections to the agents of running replicas."""

from runtime.messages import Template as _
from runtime.messages import register

REPLICA_NOT_RUNNING = _("{name} is not running.")
AGENT_TOO_OLD = _(
    "{name} was started without a control socket: by an earlier release, or from an image of its own. Start the job"
    " again to look into it."
)
AGENT_UNREACHABLE = _("The agent of {name} cannot be reached: {why}.")
AGENT_REFUSED = _("The agent of {name} refused: {why}")

register("control", globals())
