"""Cause of a failed installation, from the output of pip. Pure.

If a package index does not answer, pip repeats the request, prints the error of each try, and then reports that the
package has no version, as it does for a package that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name

from jobs.messages import cluster as messages
from runtime.messages import Message

# A request that pip repeats: the path on the index ends with the name of the package.
_REPEATED = re.compile(r"WARNING: Retrying \(.*\) after connection broken by .*: \S*/(?P<package>[^/\s]+)/?$")
_NO_VERSION = re.compile(r"ERROR: Could not find a version that satisfies the requirement (?P<package>[\w.-]+)")
_NO_FILE = re.compile(r"ERROR: Could not install packages due to an OSError: .*Max retries exceeded")
_INDEXES = "Looking in indexes: "
# The host in an error of a connection; not every release of pip prints it.
_HOST = re.compile(r"host='(?P<host>[^']+)'|Connection to (?P<slow>\S+) timed out")


def explained(problem: str, lines: Sequence[str]) -> str:
    """Return the problem of a build, in one message if pip could not reach the index; ``lines`` are pip's output."""
    if not isinstance(problem, Message) or problem.code != messages.REQUIREMENTS_NOT_INSTALLED.code:
        return problem
    failed = list(_failed_connections(lines))
    if not failed:
        return problem
    hosts = dict.fromkeys(_hosts_in(failed) or _indexes(lines))
    return messages.PACKAGE_INDEX_UNREACHABLE(host=", ".join(hosts) or messages.PACKAGE_INDEX())


def _failed_connections(lines: Sequence[str]) -> Iterator[str]:
    """Yield the errors of connections because of which the installation failed."""
    missing = {canonicalize_name(found["package"]) for line in lines if (found := _NO_VERSION.match(line))}
    for line in lines:
        repeated = _REPEATED.match(line)
        if _NO_FILE.match(line) or (repeated and canonicalize_name(repeated["package"]) in missing):
            yield line


def _hosts_in(errors: Sequence[str]) -> list[str]:
    found = (_HOST.search(error) for error in errors)
    return [each["host"] or each["slow"] for each in found if each]


def _indexes(lines: Sequence[str]) -> list[str]:
    """Return the hosts of the indexes that pip names at its start. It names none if it uses its default alone."""
    addresses = (line.removeprefix(_INDEXES).split(", ") for line in lines if line.startswith(_INDEXES))
    return [host for urls in addresses for url in urls if (host := urlsplit(url.strip()).hostname)]
