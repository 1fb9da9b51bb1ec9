"""Messages of the number of an elastic job's trainers."""

from runtime.messages import Template as _
from runtime.messages import register

JOB_OF_ANOTHER_NAMESPACE = _("a job in another namespace")
CLUSTER_SERVICE = _("a service in the cluster")
OTHER_STARTED_WORKLOADS = _("other workloads that have started")
STARTS_WITH = _("Starts with {trainers}.")
WAITING_FOR_RELEASED_CAPACITY = _("Waiting for capacity that is being released.")
FREEING_CAPACITY = _("Freeing capacity: {trainers} of other jobs are stopping.")
NO_CAPACITY = _(
    "Waiting for capacity: {trainers} and the other replicas that the job starts with do not fit, even with all "
    "other jobs at their minimum."
)
BEHIND_IN_QUEUE = _("Waiting: {job} is earlier in the queue and needs this capacity.")
SCALES_UP = _("Scales up from {before} to {trainers}: capacity is available.")
SCALES_UP_LATER = _("Scales up from {before} to {trainers} as soon as other jobs release capacity.")
SCALES_DOWN_FOR_OTHERS = _("Scales down from {before} to {trainers} to free capacity for {beneficiary}.")
JOBS_BELOW_FAIR_SHARE = _("jobs below their fair share")
SCALES_DOWN_TO_BOUND = _(
    "Scales down from {before} to {trainers}: more trainers are not allowed, or were measured to bring no benefit."
)
PREEMPTED = _("Stops and returns to the queue to free capacity for {beneficiary}, which has a higher priority.")
KEEPS_MAXIMUM = _("Has its maximum of {trainers}.")
KEEPS_NO_BENEFIT = _("Keeps {trainers}: more trainers were measured to bring no benefit.")
KEEPS_AFTER_CHANGE = _("Keeps {trainers}: the number has changed recently.")
KEEPS_NO_CAPACITY = _("Keeps {trainers}: no capacity is available for more.")

register("elastic", globals())
