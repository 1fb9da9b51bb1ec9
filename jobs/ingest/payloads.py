"""Validation of the payloads of agents, field by field, into typed values. Pure. Functions raise ValidationFailed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from jobs.streams.entries import EventRow
from portal.common.errors import ValidationFailed
from runtime import contract
from runtime.messages import from_json, shortened

BATCH_LIMIT = 50_000  # entries of one batch
KEY_LIMIT = 250  # characters of a metric's name
TEXT_LIMIT = contract.LINE_LIMIT + 1024  # characters of a line: the agent adds a remark where it cut
KIND_LIMIT = 32
WHY_LIMIT = 4000
NAME_LIMIT = 200
PHASES = ("starting", "registered", "held", "released", "exited")

_REPLICA = re.compile(r"[a-z]{1,16}-[0-9]{1,6}")
# Streams of lines: the name that agents send, and the stored name.
_STREAMS = {"stdout": "stdout", "stderr": "stderr", "agent": "agent", "system": "agent"}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SURROGATES = re.compile("[\ud800-\udfff]")
_NOT_A_NUMBER = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LARGEST_NUMBER = 2**53
_START_DIGITS = 9
_END_OF_CALENDAR = 253_402_300_800.0  # the first second of the year 10000

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Batch(Generic[Entry]):
    """Entries of a replica, numbered from ``first`` on. The replica no longer has entries up to ``gone``.

    ``start_number``: of the sender; None: it does not say.
    """

    replica: str
    first: int
    entries: list[Entry]
    gone: int = 0
    start_number: int | None = None


@dataclass(frozen=True)
class Report:
    """State of a replica. ``phase`` is one of ``PHASES``; ``code`` and ``signal`` describe how its process ended.

    ``incarnation`` is the revision of the registration. Agents that support it send it with ``registered``. With
    ``held`` they send the name of the ``exception``, and the length (``seconds``) and end (``until``, unix time) of the
    hold.
    """

    replica: str
    phase: str
    code: int | None
    signal: int | None
    out_of_memory: bool
    why: str
    start_number: int = 1
    incarnation: int | None = None
    exception: str = ""
    seconds: int = 0
    until: int = 0


@dataclass(frozen=True)
class ArtifactName:
    """Name and hash of an uploaded file, and the start of the replica that sends it."""

    replica: str
    name: str
    sha256: str
    start_number: int | None = None


LineRow = tuple[float, str, str]
PointRow = tuple[float, float, str, float]


def log_batch(body: Mapping[str, Any]) -> Batch[LineRow]:
    """Parse rows of (unix time, stream, text).

    ``system`` is the portal's own stream. User code has the token of the attempt and could write messages in the
    portal's name, so ``system`` is stored as ``agent``. Agents of an earlier version send their remarks in ``system``.
    """
    return _batch(body, "lines", (_time, _stream, _text(TEXT_LIMIT)))


def metric_batch(body: Mapping[str, Any]) -> Batch[PointRow]:
    """Parse rows of (unix time, step, key, value)."""
    return _batch(body, "points", (_time, _finite, _key, _value))


def event_batch(body: Mapping[str, Any]) -> Batch[EventRow]:
    """Parse rows of (unix time, kind, text)."""
    return _batch(body, "events", (_time, _kept(_text(KIND_LIMIT)), _messages))


def report(body: Mapping[str, Any]) -> Report:
    """Parse the report of a replica."""
    phase = body.get("phase")
    if phase not in PHASES:
        _refuse("phase", f"Must be one of {', '.join(PHASES)}.")
    return Report(
        replica=replica(body),
        phase=phase,
        code=_whole(body, "code"),
        signal=_whole(body, "signal"),
        out_of_memory=_yes_or_no(body, "out_of_memory"),
        why=_message(body, "why"),
        start_number=_whole(body, "start_number") or 1,
        incarnation=_whole(body, "incarnation", _LARGEST_NUMBER),
        exception=str(body.get("exception", ""))[:NAME_LIMIT],
        seconds=_whole(body, "seconds") or 0,
        until=_whole(body, "until", _LARGEST_NUMBER) or 0,
    )


def replica(body: Mapping[str, Any]) -> str:
    """Return the name of the sending replica."""
    name = body.get("replica")
    if not isinstance(name, str) or not _REPLICA.fullmatch(name):
        _refuse("replica", "Must be <role>-<index>, such as trainer-0.")
    return name


def artifact(query: Mapping[str, Any]) -> ArtifactName:
    """Parse a file's name and hash from the query string."""
    name, sha256 = str(query.get("name", "")), str(query.get("sha256", "")).lower()
    if not name or len(name) > NAME_LIMIT or not name.isprintable():
        _refuse("name", f"Must be a name of 1 to {NAME_LIMIT} printable characters.")
    if name.startswith("/") or "\\" in name or {"", ".", ".."} & set(name.split("/")):
        _refuse("name", "Must be a relative path that stays inside the output directory.")
    if not _SHA256.fullmatch(sha256):
        _refuse("sha256", "Must be the SHA-256 of the content, 64 hexadecimal digits.")
    start = str(query.get("start_number", ""))
    if start and not (start.isascii() and start.isdigit() and len(start) <= _START_DIGITS):
        _refuse("start_number", "Must be a whole number.")
    return ArtifactName(replica(query), name, sha256, int(start) if start else None)


def start_number(body: Mapping[str, Any]) -> int | None:
    """Return which start of the replica sends; None: it does not say."""
    return _whole(body, "start_number")


# --- Batches ---------------------------------------------------------------------------------------------------------
# A cleaner checks a whole column: a batch of a thousand points takes four calls instead of four thousand.
Cleaner = Callable[[Sequence[Any]], Sequence[Any]]


class _Refused(Exception):
    """An invalid entry of a column: its place, and why it is invalid."""

    def __init__(self, place: int, why: str) -> None:
        super().__init__(why)
        self.place, self.why = place, why


def _batch(body: Mapping[str, Any], field: str, cleaners: tuple[Cleaner, ...]) -> Batch[Any]:
    sender, first = replica(body), body.get("first")
    if type(first) is not int or not 1 <= first < _LARGEST_NUMBER:
        _refuse("first", "Must be the number of the first entry, a whole number from 1 on.")
    gone = _whole(body, "gone", _LARGEST_NUMBER) or 0
    return Batch(sender, first, _rows(body.get(field), field, cleaners), gone, start_number(body))


def _rows(rows: Any, field: str, cleaners: tuple[Cleaner, ...]) -> list[Any]:
    if not isinstance(rows, list) or len(rows) > BATCH_LIMIT:
        _refuse(field, f"Must be a list of at most {BATCH_LIMIT} entries.")
    if not rows:
        return []
    if set(map(type, rows)) != {list} or set(map(len, rows)) != {len(cleaners)}:
        place = next(place for place, row in enumerate(rows) if type(row) is not list or len(row) != len(cleaners))
        _refuse(f"{field}.{place}", f"Must be a list of {len(cleaners)} values.")
    columns = []
    for number, (cleaner, column) in enumerate(zip(cleaners, zip(*rows, strict=True), strict=True)):
        try:
            columns.append(cleaner(column))
        except _Refused as refused:
            _refuse(f"{field}.{refused.place}.{number}", refused.why)
    return list(zip(*columns, strict=True))


def _finite(column: Sequence[Any]) -> Sequence[float]:
    return _numbers(column, "Must be a finite number.", {})


def _time(column: Sequence[Any]) -> Sequence[float]:
    why = "Must be unix time in seconds, between the years 1970 and 9999."
    times = _numbers(column, why, {})
    if times and not 0 <= min(times) <= max(times) < _END_OF_CALENDAR:
        raise _Refused(next(place for place, at in enumerate(times) if not 0 <= at < _END_OF_CALENDAR), why)
    return times


def _value(column: Sequence[Any]) -> Sequence[float]:
    return _numbers(column, 'Must be a number, "NaN", "Infinity" or "-Infinity".', _NOT_A_NUMBER)


def _numbers(column: Sequence[Any], why: str, words: Mapping[str, float]) -> Sequence[float]:
    # bool is a subclass of int, but not a valid number here: the exact types are compared.
    if set(map(type, column)) <= {int, float}:
        try:
            numbers = list(map(float, column))
        except OverflowError:
            numbers = [math.inf]
        if all(map(math.isfinite, numbers)):
            return numbers
    return [_number(place, item, why, words) for place, item in enumerate(column)]


def _number(place: int, item: Any, why: str, words: Mapping[str, float]) -> float:
    if isinstance(item, str) and item in words:
        return words[item]
    try:
        number = float(item) if type(item) in (int, float) else math.nan
    except OverflowError:
        number = math.inf
    # The bare words NaN and Infinity are not JSON, but Python's encoder writes them: they are accepted if the column
    # allows such values.
    if math.isfinite(number) or (words and type(item) is float):
        return number
    raise _Refused(place, why)


def _key(column: Sequence[Any]) -> Sequence[str]:
    for key in dict.fromkeys(column) if all(type(item) is str for item in column) else column:
        if type(key) is not str or not 1 <= len(key) <= KEY_LIMIT or not key.isprintable():
            raise _Refused(column.index(key), f"Must be a name of 1 to {KEY_LIMIT} printable characters.")
    return column


def _stream(column: Sequence[Any]) -> Sequence[str]:
    if not set(map(type, column)) <= {str} or not set(column) <= _STREAMS.keys():
        place = next(place for place, item in enumerate(column) if type(item) is not str or item not in _STREAMS)
        raise _Refused(place, "Must be one of stdout, stderr, agent.")
    return [_STREAMS[item] for item in column]


def _text(limit: int) -> Cleaner:
    def clean(column: Sequence[Any]) -> Sequence[str]:
        for place, item in enumerate(column):
            if type(item) is not str or len(item) > limit:
                raise _Refused(place, f"Must be a text of at most {limit} characters.")
        return [_storable(item) for item in column]

    return clean


def _messages(column: Sequence[Any]) -> Sequence[str]:
    """Read texts and messages (``runtime.messages``) as they are stored."""
    return [_read_message(item, place) for place, item in enumerate(column)]


def _read_message(item: Any, place: int) -> str:
    try:
        text = from_json(item)
    except ValueError:
        text = None
    if text is None or len(text) > WHY_LIMIT:
        raise _Refused(place, f"Must be a text of at most {WHY_LIMIT} characters.")
    return _storable_message(text)


def _storable_message(text: str) -> str:
    """Return a text or message as it is, or what can be stored of it as a text."""
    storable = _storable(text).replace("\0", "\ufffd")
    return text if storable == text else storable


def _kept(cleaner: Cleaner) -> Cleaner:
    """Replace NUL in texts that are stored in columns, because PostgreSQL rejects it."""
    return lambda column: [text.replace("\0", "\ufffd") for text in cleaner(column)]


def _storable(text: str) -> str:
    """Replace lone surrogates, which JSON can contain but UTF-8 cannot."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


# --- Single fields ---------------------------------------------------------------------------------------------------
def _whole(body: Mapping[str, Any], field: str, bound: int = 2**31) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if type(value) is not int or not -bound <= value < bound:
        _refuse(field, "Must be a whole number or null.")
    return value


def _yes_or_no(body: Mapping[str, Any], field: str) -> bool:
    value = body.get(field)
    if value not in (None, True, False) or not isinstance(value, bool | None):
        _refuse(field, "Must be true or false.")
    return bool(value)


def _message(body: Mapping[str, Any], field: str) -> str:
    value = body.get(field)
    if value is None:
        return ""
    try:
        text = from_json(value)
    except ValueError:
        _refuse(field, "Must be a text.")
    return _storable_message(shortened(text, WHY_LIMIT))


def _refuse(field: str, why: str) -> NoReturn:
    raise ValidationFailed({field: [why]})
