"""The ``regatta`` command.

Exit codes: 0 success, 1 error, 2 usage, 3 sign-in, 4 not found, 5 quota, 6 network or server, 100 the job failed, 101
it has not finished, 103 it was cancelled, 130 interrupted. A lost log stream never exits with 0.
"""

from __future__ import annotations

import click

from regatta.commands import account, data, forward, inspection, job, notebook, settings, shell, stream
from regatta.errors import EXIT_INTERRUPTED, EXIT_OK, PortalError
from regatta.session import Outside, Session
from regatta.terminal.output import print_message
from regatta.version import VERSION


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]}, epilog="Help for a command: regatta COMMAND --help"
)
@click.option("--context", "asked", default="", help="Context of the configuration file. Default: the current one.")
@click.version_option(VERSION, prog_name="regatta")
@click.pass_context
def regatta(context: click.Context, asked: str) -> None:
    """Submit and monitor training jobs, and manage datasets."""
    context.obj = Session(context.obj or Outside(), asked)


for group in (account, job, inspection, stream, data, notebook, settings, shell, forward):
    for command in group.COMMANDS:
        regatta.add_command(command)


def main(arguments: list[str] | None = None, outside: Outside | None = None) -> int:
    """Run the command and return its exit code. Errors of the portal, the network or a file never raise."""
    try:
        regatta.main(arguments, prog_name="regatta", standalone_mode=False, obj=outside)
    except PortalError as error:
        _explain(error)
        return error.exit_code
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        print_message("Interrupted. Submitted jobs keep running.")
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else EXIT_OK
    return EXIT_OK


def _explain(error: PortalError) -> None:
    print_message(f"regatta: {error.detail}")
    for name, messages in error.fields.items():
        line = f"{name}: {' '.join(messages)}"
        if line != error.detail:  # the portal's detail may be that of the only field
            print_message(f"  {line}")
