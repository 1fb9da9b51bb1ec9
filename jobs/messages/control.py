"""Messages about connections to the agents of running replicas."""

from runtime.messages import Template as _
from runtime.messages import register

REPLICA_NOT_RUNNING = _("{name} is not running.")
AGENT_TOO_OLD = _(
    "{name} was started without a control socket: by an earlier release, or from an image of its own. Start the job"
    " again to look into it."
)
AGENT_UNREACHABLE = _("The agent of {name} cannot be reached: {why}.")
SERVER_UNUSABLE = _("The server in {name} did not answer as it should: {why}.")
AGENT_REFUSED = _("The agent of {name} refused: {why}")
PROCESS_STOPPED = _("The process is stopped by a signal (SIGSTOP). It continues when it gets SIGCONT.")
INTERPRETER_LOCK_HELD = _(
    "A thread holds Python's interpreter lock in native code. The frames are the Python calls that led there."
)
STACK_SIGNAL_TAKEN = _(
    "The process does not answer, and its program has no handler of ours for signal 57, which would show its stacks."
)
PROCESS_SILENT = _("The process does not answer.")
PROCESS_NOT_PYTHON = _("No Python process that can be inspected runs here.")
NO_RUNNING_REPLICA = _("No replica of this job is running.")
REPLICA_NOT_OF_JOB = _("{name} is no running replica of this job.")
RECORDING_LENGTH_INVALID = _("Specify a number of seconds between {least} and {most}.")
RECORDING_REPLICAS_INVALID = _("Specify a list of names of replicas, or null for all.")
RECORDINGS_BUSY = _("Other recordings are in progress. Try again in {seconds} seconds.")

register("control", globals())
