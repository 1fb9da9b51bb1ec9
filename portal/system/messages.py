"""Messages of the page *System*."""

from runtime.messages import Template as _
from runtime.messages import register

PROCESS_REPORTS = _("Reporting.")
PROCESS_REPORTED_ERROR = _("Reporting. An error was logged in the last {minutes} minutes: {error}")
PROCESS_OTHER_VERSION = _("Runs version {version}; the portal is at {expected}. Restart it.")
PROCESS_REPLACED = _("Stopped reporting {seconds} s ago without an orderly end. Process {pid} has replaced it.")
PROCESS_SILENT = _(
    "Has not reported for {seconds} s. It has ended or hangs, or the database is away. Read its log and restart it."
)
PROCESS_KIND_MISSING = _(
    "No {kind} process is reporting. Read the output of `manage.py up`, or the log of the pod, and start it."
)
PASS_SLOW = _("The last pass took {seconds} s; it should take less than {limit} s. Look for slow tasks in its log.")
TASK_FAILING = _("Failed {count} times in a row: {error}")

SERVER_REACHABLE = _("Reachable.")
SERVER_NOT_USED = _("Not used.")
COORDINATION_EMBEDDED = _("Not used: each attempt has an embedded store.")
CLUSTER_NOT_USED = _("Not used: jobs are processes on this machine.")
DATABASE_UNREACHABLE = _("The database did not answer ({error}). Check that it runs, and REGATTA_DATABASE_URL.")
REDIS_UNREACHABLE = _(
    "Redis did not answer ({error}). Pages update some seconds later. Check that it runs, and REGATTA_REDIS_URL."
)
ETCD_UNREACHABLE = _(
    "etcd did not answer ({error}). Running jobs wait for it. Check that it runs, and REGATTA_COORDINATION."
)
KUBERNETES_UNREACHABLE = _(
    "The API server did not answer ({error}). Check the cluster, REGATTA_KUBECONFIG and the permissions of the portal."
)
STORAGE_UNREACHABLE = _("The storage cannot be used ({error}). Check the mount or the bucket, and its credentials.")
MIGRATIONS_PENDING = _("Pending migrations: {count}. Run `manage.py prepare`, or restart the portal.")
ETCD_MEMBERS_DOWN = _("{reachable} of {members} members answer. Start the others before one more fails.")
ETCD_ALARM = _("etcd has raised {alarms}. Free space, then disarm the alarm as in the operation manual.")
LEASE_UNKNOWN = _("Reachable. The lease of the PaddleJob controller does not exist or cannot be read.")
LEASE_HELD = _("Reachable. {holder} is the active PaddleJob controller.")
LEASE_STALE = _(
    "The PaddleJob controller has not renewed its lease for {seconds} s, so no pods are created. Check its pods."
)

DATABASE_RESTORED = _(
    "The database was restored at {time}, to its state of {point} UTC. Attempts that it did not know and that were "
    "stopped: {unknown}. Attempts that had ended since: {missing}."
)

DISK_SPACE = _("{percent}% free.")
DISK_SPACE_LOW = _("Only {percent}% free. Free space or enlarge the volume.")
DISK_SPACE_OUT = _("Only {percent}% free. Writes fail soon: free space or enlarge the volume now.")
INODES_LOW = _("Only {percent}% of the inodes are free. Remove small files, or enlarge the volume.")

QUEUE_EMPTY = _("No queued jobs.")
QUEUE_WAITS = _("The oldest job waits: {why}")
QUEUE_WAITS_LONG = _("The oldest job has waited for {hours} h: {why}")
QUEUE_NEXT = _("It is next to start.")
STREAMS_MERGED = _("No stream waits.")
STREAMS_WAIT = _("Streams that wait to be merged: {count}.")
STREAMS_LAG = _(
    "Streams that wait to be merged: {count}, the first for {minutes} minutes. Check the sweep and its log."
)

CERTIFICATE_VALID = _("Valid for {days} more days.")
CERTIFICATE_EXPIRES = _("Expires in {days} days. Renew it.")
CERTIFICATE_EXPIRED = _("Expired. Browsers and agents refuse the connection: renew it.")
CERTIFICATE_UNREADABLE = _(
    "The certificate of {host} cannot be read from the portal ({error}). Check its date from another machine."
)
CERTIFICATE_NOT_USED = _("Not used: REGATTA_HTTPS is 0.")
CERTIFICATE_NO_HOST = _("REGATTA_ALLOWED_HOSTS names no host whose certificate could be read.")
TOKENS_NONE = _("No token expires within {days} days.")
TOKENS_EXPIRE = _("Tokens that expire within {days} days: {count}. Ask their owners to replace them.")
CREDENTIAL_WITHOUT_DATE = _("It carries no expiry date.")
CREDENTIAL_VALID = _("Valid until {date}.")
CREDENTIAL_RENEWED = _("Valid until {date}; the cluster renews it.")
CREDENTIAL_EXPIRES = _("Expires in {days} days. Renew it.")
CREDENTIAL_EXPIRED = _("Expired. Renew it.")

MAIL_FLOWS = _("No e-mail waits.")
MAIL_WAITS = _("E-mails that wait to be sent: {count}.")
MAIL_LATE = _("E-mails that wait to be sent: {count}, the first for {minutes} minutes. Check the sweep.")
MAIL_FAILS = _("E-mails that failed in the last day and are tried again: {count} ({error}). Check REGATTA_MAIL_SERVER.")
MAIL_GIVEN_UP = _(
    "E-mails of the last day that were given up: {count} ({error}). Check REGATTA_MAIL_SERVER. Their"
    " recipients have to ask for them again."
)
MAIL_SERVER_MISSING = _(
    "Sign-up is open, but REGATTA_MAIL_SERVER is not set, so new accounts cannot be confirmed. Set it, or close the"
    " sign-up with REGATTA_SIGN_UP=closed."
)
MAIL_TO_OUTPUT = _("E-mails are written to the output of the sweep: REGATTA_MAIL_SERVER is not set.")

EMAIL_NOT_WAITING = _("This e-mail is no longer waiting: it was sent, was given up, or is being sent now.")
NOT_FINISHED = _("no answer within {seconds} s")

register("system", globals())
