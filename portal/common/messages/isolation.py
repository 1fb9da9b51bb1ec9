"""Messages about the isolation of jobs on one machine: its layers, missing parts, and how to get them."""

from django.utils.translation import gettext_noop as _

MESSAGES: tuple[str, ...] = (
    # Layers
    _("user id of its own"),
    _("user namespace"),
    _("PID, mount and IPC namespaces"),
    _("own view of files"),
    _("no capabilities"),
    _("cgroup with limits of memory and processes"),
    _("cgroup with limits of memory"),
    _("cgroup with limits of processes"),
    _("network namespace"),
    # Missing parts: which, why, and how to get them
    _("{directory} is below {tree}, which every job reads: set REGATTA_DATA_DIR to another place"),
    _("network namespaces do not work ({problem}): set user.max_net_namespaces=10000 with sysctl"),
    _("the portal runs as root and cannot isolate jobs ({problem}): {how}"),
    _("run it with CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID, or as an ordinary user"),
    _("user namespaces do not work ({problem}): {how}"),
    _("set kernel.unprivileged_userns_clone=1 with sysctl"),
    _("set user.max_user_namespaces=10000 with sysctl"),
    _("allow userns to the portal's Python in AppArmor, or set kernel.apparmor_restrict_unprivileged_userns=0"),
    _("in a container, allow it user namespaces, or use Linux 5.12 or newer"),
    _("a command did not end in time"),
    _("a command ended with code {code}"),
    _("jobs can reach abstract sockets of other programs: use Linux 6.12 or newer with Landlock"),
    _("no cgroup v2 for each job: mount cgroup2 at /sys/fs/cgroup"),
    _("no cgroup for each job ({folder} cannot be used): {how}"),
    _("no cgroup for each job ({folder} cannot be made): {how}"),
    _("no cgroup for each job: use Linux 5.14 or newer"),
    _("the kernel sets no limits of {what} ({folder} has no such controllers): {how}"),
    _("the kernel sets no limits of {what}: other processes are in {folder}; {how}"),
    _("run the portal in a systemd unit with Delegate=yes"),
    _(
        "run the portal in a systemd unit with Delegate=yes; where cgroups v1 has them, boot with "
        "systemd.unified_cgroup_hierarchy=1"
    ),
    _("memory and processes"),
    _("memory"),
    _("processes"),
)
