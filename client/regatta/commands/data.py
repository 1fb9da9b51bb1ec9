"""Data sets: up, down, and who may read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from regatta import output, progress
from regatta.errors import PortalError
from regatta.models import DataSet, Version
from regatta.output import Listing, joined, say
from regatta.session import Session, take

LONGEST_CELL = 60


@click.group()
def data() -> None:
    """Data sets, named namespace/name such as public/digits."""


def _full(portal: Any, name: str) -> str:
    """A name without a namespace is of the one in use."""
    return name if "/" in name else f"{portal.own_namespace()}/{name}"


@data.command("ls")
@click.argument("name", required=False)
@click.option("-n", "--namespace", default="", help="Only those of this namespace.")
@click.option("-q", "--query", default=None, help="Only those whose name holds this.")
@output.option
@take
def list_data(session: Session, name: str | None, namespace: str, query: str | None, form: str) -> None:
    """List the data sets that you may read; with NAME the versions of one, the newest first."""
    with session.portal() as portal:
        if name:
            _show_versions(portal.data.get(_full(portal, name)), form)
            return
        found = list(portal.data.of(namespace, query) if namespace else portal.data.all(query))
    rows = [(one.full_name, one.visibility, str(one.latest or ""), *_amounts(one), one.description) for one in found]
    heads = ("NAME", "SEEN BY", "VERSION", "SIZE", "RECORDS", "WHAT")
    raw = [one.raw for one in found]
    output.show(form, Listing(heads, rows, raw, [one.full_name for one in found], "There is no such data set."))


def _show_versions(found: DataSet, form: str) -> None:
    rows = [
        (str(one.number), one.state, str(one.files), *_amounts(one), one.sealed or "", one.why)
        for one in sorted(found.versions, key=lambda one: -one.number)
    ]
    heads = ("VERSION", "STATE", "FILES", "SIZE", "RECORDS", "SEALED", "WHY")
    output.show(form, Listing(heads, rows, found.raw, [row[0] for row in rows], "It has no version yet."))


def _amounts(one: DataSet | Version) -> tuple[str, str]:
    """Size and number of records."""
    return output.size(one.size), "" if one.records is None else f"{one.records:,}"


@data.command()
@click.argument("name")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--new", "fresh", is_flag=True, help="Begin a new version even where one was left half uploaded.")
@output.option
@take
def upload(session: Session, name: str, sources: tuple[Path, ...], fresh: bool, form: str) -> None:
    """Put files and folders into a new version of the data set NAME, which is made if need be.

    An upload that was broken off goes on where it was: run the same command again.
    """
    with session.portal() as portal, progress.shown() as bar:
        full = _full(portal, name)
        version: Version = portal.upload(full, *sources, fresh=fresh, progress=bar)
    say(f"Version {version.number} of {full} is sealed: {version.files} files, {output.size(version.size)}.")
    if form == "table":
        click.echo(f"{full}@{version.number}")
        return
    output.show(form, output.one((), (), vars(version), f"{full}@{version.number}"))


@data.command()
@click.argument("name")
@click.argument("target", type=click.Path(path_type=Path), default=Path())
@click.option("--version", type=click.IntRange(min=1), default=None, help="The newest if left out.")
@take
def download(session: Session, name: str, target: Path, version: int | None) -> None:
    """Copy the data set NAME to the folder TARGET; what is there already is not fetched again."""
    with session.portal() as portal, progress.shown() as bar:
        files = portal.fetch(_full(portal, name), target, version=version, progress=bar)
    say(f"{len(files)} files are in {target}.")


@data.command()
@click.argument("name")
@click.option("--version", type=click.IntRange(min=1), default=None, help="The newest if left out.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True)
@output.option
@take
def preview(session: Session, name: str, version: int | None, limit: int, form: str) -> None:
    """Show the first records of a data set, and how much it holds."""
    with session.portal() as portal:
        full = _full(portal, name)
        number = version or portal.data.get(full).latest
        if number is None:
            raise PortalError(f"{full} has no sealed version yet. Upload one: regatta data upload {full} FILES")
        found = portal.data.preview(full, number, limit=limit)
    say(_summary(f"{full}@{number}", found))
    heads = [column["name"] for column in found["columns"]] or ["RECORD"]
    rows = [[_short(value) for value in record] for record in found["records"]]
    output.show(form, Listing(heads, rows, found, [row[0] for row in rows], "It has no records that jobs read."))


def _summary(name: str, found: Mapping[str, Any]) -> str:
    """What the version is as a whole, which file is shown, and why there is no more of it."""
    whole = found["statistics"]
    records = "" if whole["records"] is None else f"records {whole['records']:,}, chunks {whole['chunks']:,}, "
    told = f"{name}: {found['format']}, {records}files {whole['files']:,}, {output.size(whole['size'])}."
    shown = f" The first of {found['file']}:" if found["file"] else ""
    further = f" {found['more_columns']} further columns are not shown." if found["more_columns"] else ""
    return f"{told}{further} {found['why']}".rstrip() + shown


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"


@data.command()
@click.argument("name")
@output.option
@take
def uses(session: Session, name: str, form: str) -> None:
    """List the newest jobs that use the data set NAME, of those that you may see."""
    with session.portal() as portal:
        found = portal.data.uses(_full(portal, name))
    rows = [(one.name, one.state, one.namespace, one.owner, one.version, one.began) for one in found]
    heads = ("JOB", "STATE", "NAMESPACE", "OWNER", "VERSION", "SUBMITTED")
    raw = [vars(one) for one in found]
    names = [one.name for one in found]
    output.show(form, Listing(heads, rows, raw, names, "No job that you may see has used it."))


@data.command()
@click.argument("name")
@click.argument("namespaces", nargs=-1)
@click.option("--public", is_flag=True, help="Let everybody on the portal read it.")
@click.option("--private", is_flag=True, help="Let nobody else read it.")
@take
def share(session: Session, name: str, namespaces: tuple[str, ...], public: bool, private: bool) -> None:
    """Let exactly NAMESPACES read the data set, or everybody, or nobody else."""
    if public + private + bool(namespaces) != 1:
        raise click.UsageError("Name namespaces, or say --public or --private.")
    with session.portal() as portal:
        full = _full(portal, name)
        found = portal.data.share(full, namespaces)
        if found.visibility != ("public" if public else "private"):
            found = portal.data.change(full, visibility="public" if public else "private")
    readers = "everybody" if found.visibility == "public" else joined(found.shared_with) or "nobody else"
    say(f"{full} is read by its namespace and by {readers}.")


@data.command("rm")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@take
def remove(session: Session, name: str, yes: bool) -> None:
    """Delete a data set. Until its time of grace is over, `regatta data restore` takes it back."""
    with session.portal() as portal:
        full = _full(portal, name)
        if not yes:
            click.confirm(f"Delete {full} with all its versions?", abort=True, err=True)
        portal.data.remove(full)
    say(f"{full} is deleted. Take it back with: regatta data restore {full}")


@data.command()
@click.argument("name")
@take
def restore(session: Session, name: str) -> None:
    """Take back a data set that was deleted."""
    with session.portal() as portal:
        found = portal.data.restore(_full(portal, name))
    say(f"{found.full_name} is back.")


COMMANDS = (data,)
