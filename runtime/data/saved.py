"""Folders that HuggingFace ``save_to_disk`` has written: selects the ``.arrow`` files that are shards. Pure.

``state.json`` beside the shards lists them. Other files (``cache-*.arrow``, shards of an earlier save) do not belong to
the dataset. ``dataset_dict.json`` lists the folders of splits. A folder with missing files is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from runtime.data.errors import FormatError
from runtime.data.format_selection import Unread
from runtime.data.splits import TRAIN, split_of
from runtime.messages import data as messages

MOST_BYTES = 16 << 20  # of a description
_STATE, _SPLITS = "state.json", "dataset_dict.json"
_SUFFIX = ".arrow"

# Returns the first MOST_BYTES + 1 bytes of a file, by its path.
ReadFile = Callable[[str], bytes]


def left_out(paths: Mapping[str, object], read: ReadFile) -> Mapping[str, Unread]:
    """Return by path the files in such folders that are not read, and why.

    Raises FormatError for an incomplete folder.
    """
    left: dict[str, Unread] = {}
    for path in paths:
        if PurePosixPath(path).name == _STATE:
            left |= _not_listed(path, paths, read)
        if PurePosixPath(path).name == _SPLITS:
            left |= _of_other_splits(path, paths, read)
    return left


def _not_listed(path: str, paths: Mapping[str, object], read: ReadFile) -> Mapping[str, Unread]:
    folder = PurePosixPath(path).parent
    beside = [each for each in paths if PurePosixPath(each).parent == folder and each.endswith(_SUFFIX)]
    state = _parsed(path, read, strict=bool(beside))
    if not isinstance(state, dict) or not ("_data_files" in state or beside):
        return {}
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise FormatError(messages.ROW_ORDER_SEPARATE(path=path))
    try:
        listed = [str(folder / each["filename"]) for each in state["_data_files"]]
    except (KeyError, TypeError):
        raise _damaged(path) from None
    for each in listed:
        if each not in paths:
            raise FormatError(messages.LISTED_FILE_MISSING(path=path, name=f"{PurePosixPath(each).name!r}"))
    return dict.fromkeys(set(beside) - set(listed), Unread.UNLISTED)


def _of_other_splits(path: str, paths: Mapping[str, object], read: ReadFile) -> Mapping[str, Unread]:
    """Return shards of splits for neither training nor testing, such as ``unsupervised``, beside one for training."""
    splits = _parsed(path, read, strict=True)
    if not isinstance(splits, dict) or not isinstance(splits.get("splits"), list):
        raise _damaged(path)
    folders = {str(name): PurePosixPath(path).parent / str(name) for name in splits["splits"]}
    for name, folder in folders.items():
        if str(folder / _STATE) not in paths:
            raise FormatError(messages.SPLIT_STATE_MISSING(path=path, name=f"{name!r}"))
    if TRAIN not in map(split_of, map(str, folders.values())):
        return {}
    unknown = {folder for folder in folders.values() if not split_of(str(folder))}
    return dict.fromkeys(_shards(paths, unknown), Unread.SPLIT)


def _shards(paths: Mapping[str, object], folders: set[PurePosixPath]) -> Iterator[str]:
    return (path for path in paths if PurePosixPath(path).parent in folders and path.endswith(_SUFFIX))


def _parsed(path: str, read: ReadFile, *, strict: bool) -> Any:
    """Return the parsed file. Unless ``strict``, the result is None if it is not JSON: it may be another program's."""
    data = read(path)
    try:
        return json.loads(data) if len(data) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        if strict:
            raise _damaged(path) from None
        return None


def _damaged(path: str) -> FormatError:
    return FormatError(messages.SAVED_DATASET_INVALID(path=path))
