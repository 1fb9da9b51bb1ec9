"""Messages of jobs that make no progress, and of trainers that are slower than the others."""

from runtime.messages import Template as _
from runtime.messages import register

STALLED_STEPS = _("No step ended for {length}: {diagnosis}.")
STALLED_POINTS = _("No metric point arrived for {length}: {diagnosis}.")
STALLED_LINES = _("No line was printed for {length}: {diagnosis}.")
PROGRESS_AGAIN = _("The job makes progress again, after {length}.")
RESTART_IMPOSSIBLE = _("{text} No replica is restarted: the diagnosis names none that has restarts left.")
ATTEMPT_STALLED = _("The job made no progress.")

STRAGGLER = _("{replica} takes {ratio} x as long as the others: {part}.")
STRAGGLER_OVER = _("{replica} no longer takes longer than the others.")

READING = _("reading")
COMPUTING = _("computing")
PUSHING = _("pushing")

# --- Parts of a diagnosis --------------------------------------------------------------------------------------------
STANDS_AT = _("{replica} stands at {file} line {line} ({function})")
STANDS_AT_AND = _("{replica} stands at {file} line {line} ({function}) and {doing}")
STANDS_IN_PART = _("{replica} has been {part} at the same instruction for {count} s")
MOVES_IN_PART = _("{replica} has been {part} for {count} s; its instructions change")
DOES = _("{replica} {doing}")
STOPPED = _("{replica} is stopped by a signal (SIGSTOP)")
UNRESPONSIVE = _("{replica} does not respond: it is stopped, or native code holds the interpreter lock")
UNRESPONSIVE_AT = _(
    "{replica} does not respond at {file} line {line} ({function}): native code holds the interpreter lock"
)
GONE = _("the process of {replica} is gone")
COLLECTS = _("{replica} spends {percent} % of its time in garbage collections")
COLLECTS_AT = _("{replica} spends {percent} % of its time in garbage collections, at {file} line {line} ({function})")
DISK_FULL = _("the disk of {replica} is full")
DISK_FULL_AT = _("the disk of {replica} is full, and it stands at {file} line {line} ({function})")
OVERLOADED = _("{replica} is busy and has not answered yet")
UNREACHED = _("{replica} waits for requests: their packets do not arrive")
DIFFERENT_PLACES = _("the trainers wait for one another at different places: {places}")
ALL_WAIT = _("{replicas} wait for the parameter servers or the master")
WAIT_FOR_IT = _("{text}; {replicas} wait for it")
WAITS_FOR_IT = _("{text}; {replicas} waits for it")
NOT_KNOWN = _("the processes do not say where they are")

WAITS_FOR_LOCK = _("waits for a lock or a thread")
WAITS_FOR_QUEUE = _("waits for a queue")
WAITS_FOR_PIPE = _("waits for a pipe or another process")
WAITS_FOR_NETWORK = _("waits for the network")
WAITS_FOR_FILE = _("waits for a file system")
WAITS_IN_DECODE = _("waits for decode= of the reader")
WAITS_FOR_MASTER = _("waits for the master")
WAITS_FOR_SERVERS = _("waits for the parameter servers")

register("stalls", globals())
