"""Messages of the isolation of user code."""

from runtime.messages import Template as _
from runtime.messages import register

LAYER_USER_ID = _("separate user ID")
LAYER_USER_NAMESPACE = _("user namespace")
LAYER_NAMESPACES = _("PID, mount and IPC namespaces")
LAYER_FILES = _("separate view of files")
LAYER_NO_CAPABILITIES = _("no capabilities")
LAYER_NETWORK = _("network namespace")
DATA_DIR_EXPOSED = _("{directory} is below {tree}, which every job can read: set REGATTA_DATA_DIR to another directory")
NETWORK_NAMESPACES_UNAVAILABLE = _(
    "network namespaces are not available ({problem}): set user.max_net_namespaces=10000 with sysctl"
)
ROOT_CANNOT_ISOLATE = _("the portal runs as root and cannot isolate jobs ({problem}): {how}")
GRANT_ISOLATION_CAPABILITIES = _("run the portal with CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID, or as an ordinary user")
USER_NAMESPACES_UNAVAILABLE = _("user namespaces are not available ({problem}): {how}")
SET_UNPRIVILEGED_USERNS_CLONE = _("set kernel.unprivileged_userns_clone=1 with sysctl")
SET_MAX_USER_NAMESPACES = _("set user.max_user_namespaces=10000 with sysctl")
ALLOW_USERNS_IN_APPARMOR = _(
    "allow userns for the portal's Python in AppArmor, or set kernel.apparmor_restrict_unprivileged_userns=0"
)
ALLOW_USER_NAMESPACES_IN_CONTAINER = _(
    "if the portal runs in a container, allow user namespaces for the container, or use Linux 5.12 or newer"
)
COMMAND_TIMED_OUT = _("a command timed out")
COMMAND_EXIT_CODE = _("a command exited with code {code}")
ABSTRACT_SOCKETS_REACHABLE = _(
    "jobs can reach abstract sockets of other programs: use Linux 6.12 or newer with Landlock"
)
CGROUP2_NOT_MOUNTED = _(
    "jobs do not get their own cgroups because cgroup v2 is missing: mount cgroup2 at /sys/fs/cgroup"
)
CGROUP_UNUSABLE = _("jobs do not get their own cgroups ({folder} cannot be used): {how}")
CGROUP_NOT_CREATED = _("jobs do not get their own cgroups ({folder} cannot be created): {how}")
KERNEL_TOO_OLD_FOR_CGROUPS = _("jobs do not get their own cgroups: use Linux 5.14 or newer")
CGROUP_CONTROLLERS_MISSING = _("the kernel does not limit {what} ({folder} has no such controllers): {how}")
CGROUP_HAS_OTHER_PROCESSES = _("the kernel does not limit {what}: other processes are in {folder}; {how}")
DELEGATE_CGROUP = _("run the portal in a systemd unit with Delegate=yes")
DELEGATE_CGROUP_UNIFIED = _(
    "run the portal in a systemd unit with Delegate=yes; if cgroups v1 holds the controllers, boot with "
    "systemd.unified_cgroup_hierarchy=1"
)
MEMORY = _("memory")
PROCESSES = _("processes")
NO_SYSCALL_FILTER = _("No system call filter is available for {machine}, only for {known}.")
CGROUPS_NOT_PREPARED = _("Cgroups for jobs could not be prepared in {folder}: {error}.")
NO_LANDLOCK = _("This kernel does not support Landlock: the trainer can read everything that its user can read.")
LAYER_CGROUP = _("cgroup with limits on {limits}")
LIMITS_NOT_PASSED_ON = _("the kernel sets no limits on {limits} ({path} does not have these controllers): {advice}")

register("isolation", globals())
