"""Messages of paused jobs."""

from runtime.messages import Template as _
from runtime.messages import register

PAUSING = _("{name} pauses the job. Each trainer stops before its next step; the quota goes on counting.")
PAUSED_STEPS = _(
    "Paused by {name}. Every trainer stands between two steps, in sync mode at the same one; the quota goes on"
    " counting."
)
PAUSED_SIGNAL = _(
    "Paused by {name}. All processes are stopped by a signal (SIGSTOP), not at the same step; the quota goes on"
    " counting."
)
PAUSED_BY = _("Paused by {name}.")
RESUMED_BY = _("{name} lets the job go on, after a pause of {length}.")
NOT_RUNNING = _("Only a job in the state RUNNING can be paused or go on.")
NEEDS_AGENT = _("A job with an image of its own cannot be paused: it runs without the platform's agent.")

register("pauses", globals())
