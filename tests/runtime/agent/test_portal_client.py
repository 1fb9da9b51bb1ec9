"""A container's agent gets complete answers from the portal, and no proxy prevents a replica's start."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.agent.portal_client import NotFetched, Portal
from tests.runtime.agent.ingest_server import problem

PAGE = b"<html>404 default backend</html>"


class Connection:
    """Connection that can only be closed."""

    def close(self) -> None:
        """Do nothing: no connection is open."""


class Response(io.BytesIO):
    """Response with a status and a body, whose last bytes may be lost in transit."""

    def __init__(self, status: int, content: bytes, truncated_bytes: int = 0) -> None:
        super().__init__(content[: len(content) - truncated_bytes])
        self.status, self._end = status, len(content)

    @property
    def length(self) -> int:
        return self._end - self.tell()


OpenCall = Callable[..., tuple[Any, Any]]


def portal(*answers: Response, clock: Callable[[], float] = lambda: 0.0) -> Portal:
    made, left = Portal("http://portal.test", "attempt", "token", clock=clock), list(answers)
    made.open = lambda method, call, body: (Connection(), left.pop(0))  # type: ignore[method-assign]
    return made


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


@pytest.mark.parametrize("status", [301, 302, 401, 403, 404, 407, 409, 410, 413, 429, 500, 502, 503])
@pytest.mark.parametrize(
    "content", [PAGE, b"", encoded({"code": "not_found"}), encoded({"code": "stale_attempt"})], ids=range(4)
)
def test_after_a_proxy_s_answer_the_request_is_repeated(status: int, content: bytes) -> None:
    now = iter(range(0, 10_000, 100))
    client = portal(*[Response(status, content) for _ in range(3)], clock=lambda: float(next(now)))
    for _ in range(3):
        with pytest.raises(NotFetched) as refused:
            client.numbers("trainer-0", 1)
        assert not refused.value.over


def test_an_attempt_that_was_replaced_is_over_at_once() -> None:
    with pytest.raises(NotFetched) as refused:
        portal(Response(409, encoded(problem("stale_attempt", "newer")))).numbers("trainer-0", 1)
    assert refused.value.over


def test_an_attempt_that_is_missing_for_a_minute_is_over() -> None:
    now = [0.0]
    missing = encoded(problem("not_found", "none"))
    client = portal(*[Response(404, missing) for _ in range(3)], clock=lambda: now[0])
    over = []
    for now[0] in (0.0, 59.0, 60.0):
        with pytest.raises(NotFetched) as refused:
            client.numbers("trainer-0", 1)
        over.append(refused.value.over)
    assert over == [False, False, True]


@pytest.mark.parametrize(
    "content",
    [PAGE, b"", b"[]", b"null", b"7", b'{"logs": "many"}', b'{"logs": null}', b"{}", b'{"status": 1}'],
    ids=range(9),
)
def test_a_page_with_status_200_is_requested_again(content: bytes) -> None:
    with pytest.raises(NotFetched) as refused:
        portal(Response(200, content)).numbers("trainer-0", 1)
    assert not refused.value.over


@pytest.mark.parametrize(
    "content", [PAGE, b"{}", b'{"files": 7}', b'{"files": [7]}', b'{"files": [{"path": "a"}]}'], ids=range(5)
)
def test_an_invalid_listing_is_requested_again(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(NotFetched):
        portal(Response(200, content)).data(tmp_path)


def archive(*names: str) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 5
            tar.addfile(entry, io.BytesIO(b"hello"))
    return target.getvalue()


def test_code_that_ends_between_two_files_did_not_come_whole(tmp_path: Path) -> None:
    content = archive("a.py", "b.py")
    with pytest.raises(NotFetched, match="did not come whole"):
        portal(Response(200, content, truncated_bytes=len(content) - 1024)).code(tmp_path)


def test_code_that_came_whole_is_unpacked(tmp_path: Path) -> None:
    portal(Response(200, archive("a.py", "b.py"))).code(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "b.py"]


def test_a_file_that_was_cut_is_not_there(tmp_path: Path) -> None:
    listing = encoded({"files": [{"path": "a.bin", "size": 10}]})
    with pytest.raises(NotFetched):
        portal(Response(200, listing), Response(200, b"x" * 10, truncated_bytes=3)).data(tmp_path)
    assert not (tmp_path / "a.bin").exists()
