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
NOTEBOOK_IMPERSONATED = _("You are viewing the portal as another account. Notebooks cannot be opened then.")
NOTEBOOK_SESSION_ENDED = _("Your session with this notebook has ended. Open the notebook again from the portal.")
NOTEBOOK_TICKET_INVALID = _(
    "This link to the notebook was used before or is too old. Open the notebook again from the portal."
)
NOTEBOOK_ADDRESS_INVALID = _("There is no notebook at this address.")
NOTEBOOK_FOREIGN_REQUEST = _(
    "A page of another site has caused this request. Open the notebook in a window of its own."
)
NOTEBOOK_TOKEN_REQUIRED = _("Send a personal token with the scope job:exec, as Authorization: token TOKEN.")
NOTEBOOK_NOT_ENCRYPTED = _("Notebooks are reached over HTTPS only.")
NOTEBOOK_SERVER_SILENT = _("The server of the notebook does not answer. If it was just started, try again in a moment.")
NOTEBOOK_SERVER_REDIRECTS = _("The server of the notebook redirects to another site, which is not followed.")
NOTEBOOK_BUSY = _("This notebook has too many open requests. Try again in a moment.")

register("notebooks", globals())
