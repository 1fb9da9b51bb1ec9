"""Report on a directory of checkpoints: every file, the versions formed, and which of them a resume would take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.checkpoint import reader
from runtime.checkpoint.data_position import Progress
from runtime.checkpoint.filesystem import Files, LocalFiles, of_attempt
from runtime.checkpoint.format import Damaged, Header
from runtime.checkpoint.index import Entry
from runtime.checkpoint.writer import MARK
from runtime.parameters.declaration import Mode


@dataclass(frozen=True)
class Seen:
    """A file. Without a ``header`` it is not a checkpoint.

    ``why`` is the reason if it cannot be used; ``md5`` is set once every byte was read.
    """

    name: str
    header: Header | None = None
    why: str = ""
    md5: str = ""


@dataclass(frozen=True)
class Report:
    """``well``: nothing is damaged, and a resume has something to continue from."""

    lines: Sequence[str]
    well: bool


def report(directory: Path, verify: bool) -> Report:
    """Report on a job's directory, or on that of one of its attempts; ``verify``: read every byte.

    Raises NotADirectoryError, FileNotFoundError.
    """
    attempts = _attempts(directory)
    seen = {title: [_look(files, name, verify) for name in files.names()] for title, files in attempts.items()}
    lines = [line for title, some in seen.items() for line in _attempt_lines(title, some)]
    chosen = next((text for text in map(_chosen, seen, seen.values()) if text), "")
    damaged = any(one.why for some in seen.values() for one in some)
    if any(seen.values()):
        lines += _conclusion(chosen, damaged, verify)
    else:
        lines = [f"There are no checkpoints in {directory}. Name the directory of a job, or of one of its attempts."]
    return Report(lines, bool(chosen) and not damaged)


def _attempts(directory: Path) -> Mapping[str, Files]:
    """Attempts by their name in messages, the newest first, in the order in which a resume reads them."""
    numbers = sorted((int(path.name) for path in directory.iterdir() if path.name.isdecimal()), reverse=True)
    if numbers:
        return {f"attempt {number}": of_attempt(directory, number) for number in numbers}
    return {str(directory): LocalFiles(directory)}


def _look(files: Files, name: str, verify: bool) -> Seen:
    if not name.endswith(MARK):
        return Seen(name)
    header = None
    try:
        header = reader.head(files, name)
        return Seen(name, header, md5=reader.load(files, name, wanted=reader.no_blocks).md5 if verify else "")
    except (Damaged, OSError) as error:
        return Seen(name, header, reader.reason(error))


# --- Lines -----------------------------------------------------------------------------------------------------------
def _attempt_lines(title: str, seen: Sequence[Seen]) -> Iterator[str]:
    yield f"{title}:"
    versions: dict[int, list[Seen]] = defaultdict(list)
    for one in seen:
        if one.header is not None:
            versions[one.header.version].append(one)
    for version in sorted(versions, reverse=True):
        yield f"  version {version}: {_completeness(versions[version])}"
        yield from (f"    {_line(one)}" for one in versions[version])
    yield from (f"  {_line(one)}" for one in seen if one.header is None)
    if not seen:
        yield "  no files"


def _completeness(seen: Sequence[Seen]) -> str:
    """The servers that have a version."""
    headers = [one.header for one in seen if one.header is not None]
    count = max(header.shards for header in headers)
    usable = {one.header.shard for one in seen if one.header is not None and not one.why}
    lacking = [str(shard) for shard in range(count) if shard not in usable]
    if lacking:
        return f"incomplete, that of server {', '.join(lacking)} of {count} is missing or damaged"
    return f"of all {count} servers" if count > 1 else "of the one server"


def _line(one: Seen) -> str:
    if one.why:
        return f"{one.name}  cannot be used: {one.why}. Bring it back from a copy, or delete it."
    if one.header is None:
        return f"{one.name}  is no checkpoint, and no resume looks at it. Keep it elsewhere."
    whole = f"  whole, md5 {one.md5}" if one.md5 else ""
    return f"{one.name}  {_describe(one.header)}{whole}"


def _describe(header: Header) -> str:
    tables = "".join(f"  table {body['table']['name']}" for body in header.tables)
    data = Progress.from_json(header.progress)
    position = f"data: pass {data.pass_id + 1}, {len(data.done)} tasks done, {len(data.begun)} begun"
    return f"server {header.shard} of {header.shards}  {header.blocks} blocks{tables}  {position}"


# --- What a resume would take ----------------------------------------------------------------------------------------
def _chosen(title: str, seen: Sequence[Seen]) -> str:
    """What a resume takes from an attempt, and why; empty if it goes on to the attempt before."""
    heads = {one.name: one.header for one in seen if one.header is not None}
    bad = {one.name for one in seen if one.why}

    def take(server: int, entry: Entry, then: str) -> Entry | None:
        return None if entry.file in bad else entry

    together = all(_synchronous(header) for header in heads.values())
    taken = reader.best(reader.generation(heads), together, take)
    if not taken:
        return ""
    if together:
        servers = f"all {len(taken)} servers have" if len(taken) > 1 else "its server has"
        return f"version {taken[0].version} of {title}, the newest that {servers} whole"
    versions = ", ".join(f"server {number} at version {entry.version}" for number, entry in enumerate(taken))
    return f"{title} with {versions}: each server goes on from its newest that is whole"


def _synchronous(header: Header) -> bool:
    return Mode.parse(str(header.declaration.get("mode", "sync"))).synchronous


def _conclusion(chosen: str, damaged: bool, verify: bool) -> Iterator[str]:
    if not chosen:
        yield "A resume would find no checkpoint: the parameters would start from their initial values."
        return
    unread = "" if verify else ", if every byte of it is as it was written: verify reads them"
    yield f"A resume would take {chosen}{unread}."
    if damaged:
        yield "It passes over what is damaged."
