"""Messages of notebooks."""

from runtime.messages import Template as _
from runtime.messages import register

NOTEBOOK_NOT_FOUND = _("The namespace {namespace} has no such notebook.")
NOTEBOOK_NOT_VISIBLE = _("There is no such notebook, or it is not yours to see.")
NOTEBOOK_STOPPED = _("The notebook {name} is not running. Start it on the page Notebooks.")
NOTEBOOK_STARTING = _("The notebook {name} is starting. Its job is {state}.")
NOTEBOOK_RUNS = _("The notebook {name} is running. Stop it first.")
NOTEBOOK_STOPS = _("The notebook {name} is stopping. Start it again in a moment.")
NOTEBOOK_NAME_TAKEN = _("This namespace has a notebook {name} already. Choose another name.")
NOTEBOOK_GONE = _("The notebook of this job was deleted.")
NOTEBOOK_IDLE = _("Stopped: nothing ran for {length}. Files in the home are kept.")
SOURCE_UNKNOWN = _("A notebook starts from one of: {names}.")
TEMPLATE_UNKNOWN = _("There is no template {name}.")
GIT_ADDRESS_INVALID = _("Give the address of a public repository, such as https://example.com/team/code.git.")
IDLE_OUT_OF_RANGE = _("Give a time between {least} and {most}, or 0 for never.")
NOTEBOOK_MEMORY_TOO_SMALL = _("A notebook needs at least {least} of memory.")
REQUIREMENTS_NOT_TEXT = _("Write one package per line.")

register("notebooks", globals())
