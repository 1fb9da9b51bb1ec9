"""Messages of the cluster, images and builds."""

from runtime.messages import Template as _
from runtime.messages import register

CLUSTER_NOT_RESPONDING = _("The cluster is not responding: {error} Trying again.")
JOB_IMAGE_NOT_CONFIGURED = _(
    "This installation has no image to run jobs from. Ask an admin to set REGATTA_REGISTRY or REGATTA_KUBERNETES_IMAGE."
)
ETCD_NOT_CONFIGURED = _(
    "The processes of the job coordinate through etcd, and this installation has no etcd that pods can reach. Ask"
    " an admin to set REGATTA_COORDINATION."
)
REQUIREMENTS_NEED_REGISTRY = _(
    "Jobs with requirements need their own images, and this installation has no image registry."
)
REMOVE_REQUIREMENTS = _("Remove the requirements, or ask an admin to set up a registry.")
CLUSTER_REQUEST_FAILED = _("The request to the cluster failed: {why}")
CLUSTER_UNREACHABLE = _("The cluster cannot be reached: {why}")
CLUSTER_NOT_PREPARED = _(
    "The cluster has no namespace {name}, or PaddleJobs are not installed: {why}. Ask an admin of the cluster to "
    "apply deploy/kubernetes."
)
JOB_FORBIDDEN_BY_CLUSTER = _("The cluster does not allow the job to be created in its namespace {name}: {why}")
JOB_REJECTED_BY_CLUSTER = _("The cluster rejected the job: {why}")
PADDLEJOB_CONFLICT = _("Other clients keep changing the PaddleJob; the change is retried at the next check.")
IMAGE_BUILD_TIMED_OUT = _("The image build took more than {count} seconds and was stopped.")
INSTALLATION_TIMED_OUT = _("Installing the requirements took more than {count} seconds and was stopped.")
BUILDAH_NOT_INSTALLED = _("Images cannot be built on this machine: buildah is not installed. Contact an admin.")
IMAGE_BUILDS_UNAVAILABLE = _("Images cannot be built on this machine: {error}. Contact an admin.")
REQUIREMENTS_TOO_LARGE = _("The requirements exceed the limit of {size} GiB for an image. Specify fewer packages.")
BASE_IMAGE_PYTHON_TOO_OLD = _(
    "The base image has Python {version}; jobs need Python {least} or newer. Set another base image."
)
BASE_IMAGE_UNUSABLE = _("The base image cannot run the platform's processes: {error}")
BASE_IMAGE_NOT_PULLED = _("The base image could not be pulled: {error}")
IMAGE_NOT_CONFIGURED = _("The image could not be configured: {error}")
IMAGE_NOT_STORED = _("The image could not be stored: {error}")
IMAGE_NOT_PUSHED = _("The image could not be pushed: {error}")
IMAGE_NOT_BUILT = _("The image could not be built: {error}")
IMAGE_BUILD_FORBIDDEN = _("The cluster does not allow the image to be built: {error}")
JOB_NAMESPACE_NOT_CREATED = _("The job's namespace could not be created on the cluster: {error}")
JOB_NETWORK_RULES_INVALID = _("The setting for the addresses that jobs can reach is not valid: {error}")
CLUSTER_NAMESPACE_FOREIGN = _(
    "The cluster has a namespace {name} that this portal did not create. Ask an admin to add the labels {label} "
    "and {other} to it, or to set another REGATTA_KUBERNETES_PREFIX."
)
DATASET_NOT_MOUNTED = _(
    "The platform cannot copy a dataset into a job with its own image, and this dataset is not mounted in pods. "
    "Remove the field dataset and fetch the data in the program, or ask an admin to mount datasets "
    "(REGATTA_KUBERNETES_DATA)."
)
IMAGES_NOT_SUPPORTED = _(
    "This installation runs jobs as processes of its own machine, without images. Remove the field image."
)
IMAGE_OF_ANOTHER_NAMESPACE = _(
    "The platform built this image for the jobs of another namespace. Specify another image."
)
LOG_END_UNREADABLE = _("The end of the log could not be read: {why}")
LOG_END_MISSING = _("The pod is gone; the end of the log may be missing.")
LOG_ROTATED = _("The node rotated the log; lines before this one may be missing.")
PROCESSES_NOT_STARTED = _("The processes could not be started: {error}.")
ISOLATION_REQUIRED = _("REGATTA_LOCAL_ISOLATION is namespaces, but this machine cannot isolate jobs: {missing}.")
PRIVATE_NETWORK_UNAVAILABLE = _("REGATTA_LOCAL_NETWORK is private, but jobs cannot have their own networks: {why}.")
ISOLATION_OFF = _(
    "Jobs are not isolated (REGATTA_LOCAL_ISOLATION=none): every job can access everything that the portal can access."
)
ADMINS_ONLY_WITHOUT_ISOLATION = _(
    "Jobs are not isolated on this machine, so only platform admins can run them. An admin can fix this: {missing}."
)
COORDINATION_STORE_UNUSABLE = _("The coordination store cannot be used.")
GPUS_MISSING = _(
    "The processes need {count} GPUs, and this machine has {total}. Request fewer GPUs, or run the job on a cluster."
)
GPUS_TAKEN = _("The processes need {count} GPUs. Of the {total} GPUs of this machine {free} are free at the moment.")
NO_FREE_PORTS = _("this machine has no {count} consecutive free ports from {first} to {last}")
ENVIRONMENT_NOT_CREATED = _("The environment could not be created: {error}.")
INSTALLATION_TIMED_OUT_MINUTES = _("The installation took more than {count} minutes and was stopped.")
NOT_STARTED = _("could not be started: {why}")
NEVER_STARTED = _("was stopped before it was started")
STOPPED = _("was asked to stop")
AGENT_GONE = _("its agent is gone and did not report how the process ended")
REQUIREMENT_MISSING = _("The requirements do not include {package}, which a {framework} job imports.")
ADD_REQUIREMENT = _("Add it, for example {requirement}.")
IMAGE_NOT_PULLED = _("the image cannot be pulled: {why}")
IMAGE_NOT_ON_NODE = _("the image is not on the node: {why}")
IMAGE_NAME_INVALID = _("the name of the image is not valid: {why}")
IMAGE_REGISTRY_UNAVAILABLE = _("the registry of the image is not responding: {why}")
CONTAINER_NOT_CREATED = _("the container cannot be created: {why}")
CONTAINER_NOT_STARTED = _("the container cannot be started: {why}")
UNSCHEDULABLE = _("no node is available: {why}")
POD_REJECTED = _("rejected by the cluster: {why}")
POD_DELETED = _("was killed: its pod was deleted")
ENDED_BY_NODE = _("the node terminated it ({reason}): {why}")
POD_ENDED = _("its pod ended without a report of the cause")
CONTAINER_OUT_OF_MEMORY = _("ran out of memory: the node killed its container")
CONTAINER_KILLED = _("ended: its container was killed")
AGENT_NOT_STARTED = _("ended: its agent did not start: {why}")
STOPPED_BEFORE_START = _("was stopped before it started")
AGENT_DID_NOT_START = _("its agent did not start")
AGENT_DID_NOT_START_BECAUSE = _("its agent did not start: {error}")
REQUIREMENTS_NOT_INSTALLED = _("The requirements could not be installed: {error}")
NO_PACKAGE_INDEX = _(
    "{requirement} could not be installed: no package index answered. Ask an admin for an index that builds can reach "
    "(PIP_INDEX_URL)."
)
PACKAGE_INDEX_UNREACHABLE = _(
    "The requirements could not be installed: {host} could not be reached. Try again later, or ask an admin to check "
    "the network and the address in PIP_INDEX_URL. The log of replica build has the output of pip."
)
PACKAGE_INDEX = _("the package index")
NO_REASON_GIVEN = _("no reason was given")
BUILD_OUT_OF_MEMORY = _("The image could not be built: it took more than 1 GiB of memory.")
BUILD_POD_FAILED = _("its pod failed")

register("cluster", globals())
