"""Commands for notebooks."""

from __future__ import annotations

from pathlib import Path

import click

from regatta.errors import BadFile
from regatta.terminal import output
from regatta.terminal.output import print_message


@click.group()
def notebook() -> None:
    """Turn notebooks into jobs."""


@notebook.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), help="Job file to write. Default: print it.")
@click.option("--cell", type=click.IntRange(min=1), help="Number of the %%train cell, counting the code cells from 1.")
def convert(file: Path, target: Path | None, cell: int | None) -> None:
    """Write the job file of a notebook, to be submitted with `regatta submit`. The notebook is not run.

    With a %%train cell, the job is that cell with the definitions above that it uses. Without one, it is all code
    cells. Cells with the tag `skip` and magics are left out; `%pip install` becomes `requirements`.
    """
    from regatta.notebook.convert import convert as job_of

    made = job_of(file, cell=cell)
    for remark in made.remarks:
        print_message(remark)
    text = output.to_yaml(made.spec)
    if target is None:
        click.echo(text, nl=False)
        return
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadFile(f"{target} cannot be written: {error.strerror}.") from None
    print_message(f"Submit it: regatta submit {target}")


COMMANDS = (notebook,)
