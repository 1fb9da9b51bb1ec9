"""Messages of quotas and storage."""

from runtime.messages import Template as _
from runtime.messages import register

NOT_A_WHOLE_NUMBER = _("Enter a whole number.")
NOT_A_BOOLEAN = _("Specify true or false.")
NAMESPACE_QUOTA_SHORT = _(
    "The job needs {needed}; {free} of {limit} are free in `{namespace}`: running jobs hold {held}."
)
NAMESPACE_LIMIT_TOO_LOW = _(
    "The job needs {needed}; the limit in `{namespace}` is {limit}, so the job can never start."
)
REQUEST_LESS_OR_RAISE_LIMIT = _("Request fewer resources, or ask an admin to raise the limit.")
PLATFORM_CAPACITY_SHORT = _(
    "The job needs {needed}; {free} of {limit} are free on the platform: running jobs hold {held}."
)
PLATFORM_LIMIT_TOO_LOW = _("The job needs {needed}; the limit on the platform is {limit}, so the job can never start.")
NAMESPACE_STORAGE_FULL = _("This needs {needed} of storage; {free} of {limit} are left in `{namespace}`.")
PLATFORM_STORAGE_FULL = _("This needs {needed} of storage; {free} of {limit} are left on the platform.")
ARTIFACTS_USE = _("Artifacts use {amount}.")
CHECKPOINTS_USE = _("Checkpoints use {amount}.")
LOGS_AND_METRICS_USE = _("Logs and metrics use {amount}.")
CODE_USES = _("Code uses {amount}.")
DATASETS_USE = _("Datasets use {amount}.")
HOMES_USE = _("Files of notebooks use {amount}.")
LARGEST_ARTIFACTS = _("The artifacts of `{name}` use the most: {amount}.")
LARGEST_CHECKPOINTS = _("The checkpoints of `{name}` use the most: {amount}.")
LARGEST_LOG_AND_METRICS = _("The log and the metrics of `{name}` use the most: {amount}.")
LARGEST_CODE = _("The code of `{name}` uses the most: {amount}.")
LARGEST_DATASET = _("The dataset `{name}` uses the most: {amount}.")
LARGEST_HOME = _("The files of notebooks in `{name}` use the most: {amount}.")
DELETE_OR_RAISE_LIMIT = _("Delete data that is no longer needed, or ask an admin to raise the limit.")
DELETE_AND_CONTACT_ADMIN = _("Delete data that is no longer needed, and contact an admin.")
STORAGE_OVER_LIMIT = _("{amount} of storage is already used.")
STORAGE_CLOSED_TO_NEW_DATA = _("No data is deleted; no more data is accepted.")
BUDGET_SHORT = _("The job may use {needed} until its timeout; {free} of {limit} are left this month in `{namespace}`.")
SHORTEN_TIMEOUT_OR_REQUEST_MORE = _("Shorten the timeout, wait for the next month, or request a higher limit.")
CAPACITY_HELD_FOR_EARLIER_JOB = _(
    "Enough capacity is free, but this job would take it from a job that has waited longer."
)
WAITING_IN_QUEUE = _("Waiting in the queue.")
RECLAIMING_BORROWED_CAPACITY = _("Capacity that other namespaces borrowed is being reclaimed for this job.")
JOBS_BEFORE_ONE = _("{count} job is before it in the queue.")
JOBS_BEFORE = _("{count} jobs are before it in the queue.")
JOBS_BEFORE_MORE_THAN = _("More than {count} jobs are before it in the queue.")
LATEST_START = _("The job starts by {when} UTC, unless a job with precedence is submitted.")
CAPACITY_RECLAIMED_BY = _("The job ran on capacity borrowed from `{namespace}`, which needs it now.")
RESOURCE_UNKNOWN = _("This resource does not exist. Choose from: {names}.")
NO_FIELD_GIVEN = _("Specify at least one of: {names}.")
LIMIT_NOT_A_NUMBER = _("Enter a number, or null for the default.")
LIMIT_NEGATIVE = _("A limit cannot be below zero.")
LIMIT_TOO_LARGE = _("This is more than any machine has. Enter a smaller number, or null for the default.")
REQUESTED_AMOUNT_MISSING = _("Enter the amount that you need.")
QUOTA_REQUEST_ALREADY_OPEN = _("This namespace already has an open request. Withdraw it, or wait for its answer.")
QUOTA_REQUEST_NOT_FOUND = _("The request does not exist, or you do not have access to it.")
QUOTA_REQUEST_ANSWERED = _("This request has already been answered ({state}).")
AMOUNT_NOT_A_NUMBER = _("Enter a number, such as 16 or 0.5; leave the field empty for none.")
REQUESTED_RESOURCES_MISSING = _("Enter the amount that you need of at least one resource.")
HELD_OVER_LIMIT = _(
    "Running jobs hold more than the limit: {amounts}. They keep these resources; no new job starts until it fits."
)
AMOUNT_OF_CPU = _("{amount} CPU")
AMOUNT_OF_GPU = _("{amount} GPU")
AMOUNT_OF_CPU_HOURS = _("{amount} CPU-hours")
AMOUNT_OF_GPU_HOURS = _("{amount} GPU-hours")
AMOUNT_OF_STORAGE = _("{amount} of storage")
AMOUNT_OF_MEMORY = _("{amount} of memory")
RUNNING_JOB_COUNT_ONE = _("{amount} running job")
RUNNING_JOB_COUNT = _("{amount} running jobs")
HELD_AND_LIMIT = _("{amount} (limit {limit})")
AMOUNTS_NOT_AN_OBJECT = _("Must be an object that maps resources to numbers.")
DAYS_INVALID = _("Enter a whole number from 1 to {most}.")
STATE_UNKNOWN = _("Choose one of {names}.")

register("quota", globals())
