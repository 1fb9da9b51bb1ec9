"""Messages of a cluster about pods, images and namespaces."""

from django.utils.translation import gettext_noop as _

MESSAGES: tuple[str, ...] = (
    _("The cluster does not answer: {error} Trying again."),
    # Messages of a cluster about a job's pods
    _("This installation has no image to run jobs from. An admin sets REGATTA_REGISTRY or REGATTA_KUBERNETES_IMAGE."),
    _(
        "The processes of the job meet in an etcd, and this installation has none that pods reach. An "
        "admin sets REGATTA_COORDINATION."
    ),
    _("Jobs with requirements need images of their own, and this installation keeps none."),
    _("Leave them out, or ask an admin for a registry."),
    _("The cluster did not do it: {why}"),
    _("The cluster cannot be reached: {why}"),
    _(
        "The cluster has no namespace {name}, or does not know PaddleJobs: {why}. An admin of the cluster "
        "applies deploy/kubernetes."
    ),
    _("The cluster does not let the job be made in its namespace {name}: {why}"),
    _("The cluster refuses the job: {why}"),
    _("The PaddleJob is changed by others all the time; the next look goes on."),
    _("The job's dataset has no such file."),
    _("Nothing is begun in this attempt any more."),
    _("{replicas}: its image cannot be pulled: {why}."),
    _("{replicas}: its image is not on the node: {why}."),
    _("{replicas}: the name of its image cannot be read: {why}."),
    _("{replicas}: the registry of its image does not answer: {why}."),
    _("{replicas}: its container cannot be made: {why}."),
    _("{replicas}: its container cannot be started: {why}."),
    _("{replicas}: it finds no node: {why}."),
    _("{replicas}: the cluster refuses it: {why}."),
    _("{replica} was killed: its pod was deleted"),
    _("{replica} is gone: the node ended it ({reason}): {why}"),
    _("{replica} is gone: its pod ended and left no word of how"),
    _("{replica} ran out of memory: the node killed its container"),
    _("{replica} its container was killed"),
    _("{replica} its agent did not start: {why}"),
    _("a job of another namespace"),
    _("a service of the cluster"),
    _("others that have begun"),
    _("Only explained, nothing is changed: {decision}"),
    _("{name} leaves the number of trainers to the platform: {least} to {trainers}."),
    _("{name} sets the number of trainers: the platform leaves it alone from now on."),
    _("Give roles.trainer a max above its min: between them the number of trainers may change."),
    _("Write true or false."),
    _("There is no such mode; known are {names}."),
    _("Elastic jobs have been switched."),
    _("It is not known what there is to share: set the capacity on the page Quotas."),
    _("Another question is being answered. Try again in a few seconds."),
    _("It took too long. Ask about a shorter time."),
    # Why an image of a job cannot be built
    _("Making the image took more than {count} seconds and was stopped."),
    _("Installing took more than {count} seconds and was stopped."),
    _("Images cannot be made on this machine: buildah is not installed. Tell an admin."),
    _("Images cannot be made on this machine: {error}. Tell an admin."),
    _("The requirements take more than the {size} GiB that an image may have. Ask for fewer."),
    _("The base image has Python {version}; jobs need {least} or newer. Set another base image."),
    _("The base image cannot run the platform's processes: {error}"),
    _("The base image could not be had: {error}"),
    _("The image could not be set up: {error}"),
    _("The image could not be kept: {error}"),
    _("The image could not be pushed: {error}"),
    _("The image could not be made: {error}"),
    _("The image registry {host} could not {task} (it answered {status})."),
    _("The image registry {host} refuses to {task}: its credentials do not allow it ({status})."),
    _("The image registry {host} cannot be reached: {error}."),
    _("The cluster does not let the image be made: {error}"),
    # Why a namespace is not on the cluster as it should be
    _("The job's namespace could not be made on the cluster: {error}"),
    _("What jobs may reach is set wrongly: {error}"),
    _(
        "The cluster has a namespace {name} that this portal did not make. An admin gives it the label {label} and "
        "{other}, or sets another REGATTA_KUBERNETES_PREFIX."
    ),
    # Images that are used unchanged, and metadata read from them
    _(
        "Nothing brings a dataset into a job with an image of its own, and this one is mounted in no pod. "
        "Leave dataset out and have the program fetch its data, or ask an admin to mount datasets "
        "(REGATTA_KUBERNETES_DATA)."
    ),
    _("This installation runs jobs as processes of its own machine, without images. Leave image out."),
    _("This image was made by the platform for jobs, and is not to be used by others. Name another one."),
    _("{name} could not be started: {why}"),
    _("What it printed last could not be read: {why}"),
    _("Its pod is gone; what it printed last may be missing."),
    _("The node has begun another file for the log; lines before this one may be missing."),
)
