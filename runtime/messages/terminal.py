"""Messages of terminals, commands and connections in a replica."""

from runtime.messages import Template as _
from runtime.messages import register

TERMINAL_ENDED = _("This terminal has ended. Open a new one.")
TOO_MANY_TERMINALS = _("This replica has {most} terminals, which is the most. Close one first.")
TOO_MANY_COMMANDS = _("This replica runs {most} commands at once, which is the most. Wait for one to end.")
COMMAND_INVALID = _("Send the command as a list of 1 to {arguments} texts with at most {bytes} characters together.")
COMMAND_NOT_STARTED = _("The program could not be started: {why}")
NO_USER_CODE = _("This replica runs no code of yours, so it has no terminal.")
NO_SERVERS = _("This replica runs no code of yours, so nothing can be reached in it.")
CONNECTION_INVALID = _("Name a port from 1 to 65535, or a socket in the temporary directory of the replica.")
NOT_LISTENING = _("Nothing listens at {address} in the replica.")

register("terminal", globals())
