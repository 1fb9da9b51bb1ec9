"""Messages of notebooks."""

from runtime.messages import Template as _
from runtime.messages import register

NOTEBOOK_NOT_FOUND = _("The namespace {namespace} has no such notebook.")
NOTEBOOK_STOPPED = _("The notebook {name} is not running. Start it on the page Notebooks.")
NOTEBOOK_STARTING = _("The notebook {name} is starting. Its job is {state}.")

register("notebooks", globals())
