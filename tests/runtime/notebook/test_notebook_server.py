"""The notebook server as a process, with a real kernel."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.runtime.notebook.notebook_server import NotebookServer, client, follower, running, text_of

pytest.importorskip("jupyterlab")
pytestmark = pytest.mark.processes

# The output is on its way before the process is killed.
KILLS_ITSELF = "print(1, flush=True)\nimport os, signal, time; time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)"
COUNT = "import time\nfor n in range({}):\n    print(n, flush=True)\n    time.sleep({})"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NotebookServer]:
    with running(tmp_path_factory.mktemp("home")) as started:
        yield started


def _numbers(count: int) -> str:
    return "".join(f"{number}\n" for number in range(count))


def _text(content: dict[str, Any], cell: int = 0) -> str:
    """Return what a cell has printed; its outputs are one text."""
    outputs = content["cells"][cell]["outputs"]
    assert len(outputs) <= 1
    return "".join(outputs[0]["text"]) if outputs else ""


def test_the_server_listens_on_a_private_socket_and_kernels_on_no_port(server: NotebookServer) -> None:
    server.write("private.ipynb", "1")

    async def ports() -> str:
        kernel = server.session("private.ipynb")
        async with client(server, kernel) as page:
            code = (
                "import os; print(open('/proc/net/tcp').read().count(f' {os.getuid()} ') and os.getpid(), os.getpid())"
            )
            await page.finished(await page.execute("c0", code))
        return (server.temporary / "k" / f"kernel-{kernel}.json").read_text()

    assert stat.S_IMODE(server.socket.stat().st_mode) == 0o600
    assert '"transport": "ipc"' in asyncio.run(ports())


def test_what_a_cell_writes_while_no_page_is_open_is_there_in_order_once(server: NotebookServer) -> None:
    server.write("closed.ipynb", "1")

    async def scenario() -> str:
        kernel = server.session("closed.ipynb")
        async with client(server, kernel) as page:
            await page.execute("c0", COUNT.format(60, 0.1))
            await page.messages(lambda one: one["msg_type"] == "stream")
        content = server.content("closed.ipynb")
        known = content["metadata"]["regatta"]
        assert known["running"] == ["c0"]
        async with follower(server) as page:
            await page.follow("closed.ipynb", known["log"], known["cursor"])
            return _text(content) + text_of(await page.operations())

    assert asyncio.run(scenario()) == _numbers(60)
    assert _text(server.content("closed.ipynb")) == _numbers(60)


def test_the_server_saves_the_file_when_a_cell_ends_and_pages_see_no_change_on_disk(server: NotebookServer) -> None:
    server.write("saved.ipynb", "print('done')")
    where = "api/contents/saved.ipynb?content=0&hash=1"
    before = server.http.get(where).json()

    async def scenario() -> None:
        async with client(server, server.session("saved.ipynb")) as page:
            await page.finished(await page.execute("c0", "print('done')"))

    asyncio.run(scenario())
    waiting.until("the file has the output", lambda: _text(server.on_disk("saved.ipynb")) == "done\n")
    after = server.http.get(where).json()
    assert (after["hash"], after["last_modified"]) == (before["hash"], before["last_modified"])


def test_a_stale_page_that_saves_loses_no_output(server: NotebookServer) -> None:
    server.write("stale.ipynb", "print('done')")
    stale = server.content("stale.ipynb")

    async def scenario() -> None:
        async with client(server, server.session("stale.ipynb")) as page:
            await page.finished(await page.execute("c0", "print('done')"))

    asyncio.run(scenario())
    stale["cells"][0]["source"] = "print('edited')"
    server.save("stale.ipynb", stale)
    saved = server.on_disk("stale.ipynb")
    assert (_text(saved), saved["cells"][0]["source"]) == ("done\n", ["print('edited')"])
    assert "regatta" not in saved["metadata"]


def test_a_new_notebook_with_the_name_of_a_removed_one_has_none_of_its_cells(server: NotebookServer) -> None:
    server.write("again.ipynb", "print('old')")

    async def scenario() -> None:
        async with client(server, server.session("again.ipynb")) as page:
            await page.finished(await page.execute("c0", "print('old')"))

    asyncio.run(scenario())
    waiting.until("the file has the output", lambda: _text(server.on_disk("again.ipynb")) == "old\n")
    server.content("again.ipynb")
    # As a person does in a terminal.
    path = server.home / "again.ipynb"
    fresh = json.loads(path.read_text())
    path.unlink()
    fresh["cells"] = [{**fresh["cells"][0], "id": "new", "source": "2", "outputs": [], "execution_count": None}]
    path.write_text(json.dumps(fresh))
    assert [cell["id"] for cell in server.content("again.ipynb")["cells"]] == ["new"]


def test_a_page_that_has_seen_the_output_can_clear_it(server: NotebookServer) -> None:
    server.write("cleared.ipynb", "print('done')")

    async def scenario() -> None:
        async with client(server, server.session("cleared.ipynb")) as page:
            await page.finished(await page.execute("c0", "print('done')"))

    asyncio.run(scenario())
    content = server.content("cleared.ipynb")
    content["cells"][0].update(outputs=[], execution_count=None)
    server.save("cleared.ipynb", content)
    assert _text(server.content("cleared.ipynb")) == ""


def test_thousands_of_outputs_without_a_pause_arrive_in_order_once(server: NotebookServer) -> None:
    server.write("fast.ipynb", "1")
    code = "from IPython.display import display\nfor n in range(3000): display(n)"

    async def scenario() -> list[int]:
        kernel = server.session("fast.ipynb")
        async with follower(server) as log:
            await log.follow("fast.ipynb", session="page")
            async with client(server, kernel, "page") as page:
                await page.execute("c0", code)
                operations = await log.operations()
        outputs = [one["output"] for one in operations if one["op"] == "append"]
        return [int(output["data"]["text/plain"]) for output in outputs]

    assert asyncio.run(scenario()) == list(range(3000))


def test_a_large_output_is_limited_and_the_kernel_goes_on(server: NotebookServer) -> None:
    server.write("large.ipynb", "1")

    async def scenario() -> None:
        async with client(server, server.session("large.ipynb"), "large") as page:
            await page.finished(await page.execute("c0", "for _ in range(100): print('x' * 1_000_000)"))

    asyncio.run(scenario())
    begin, note = server.content("large.ipynb")["cells"][0]["outputs"]
    assert len(begin["text"]) < 2_000_000
    assert "longer than 2 MB" in note["data"]["text/plain"]
    waiting.until("the file is saved", lambda: server.on_disk("large.ipynb")["cells"][0]["outputs"])
    stored, note = server.on_disk("large.ipynb")["cells"][0]["outputs"]
    assert 9_000_000 < len("".join(stored["text"])) <= 10_000_000
    assert "were left out" in "".join(note["data"]["text/plain"])


def test_a_notebook_is_busy_while_a_cell_runs(server: NotebookServer) -> None:
    server.write("busy.ipynb", "1")

    async def scenario() -> tuple[bool, bool]:
        async with client(server, server.session("busy.ipynb")) as page:
            waits = "import os, time\nprint(1, flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)"
            execution = await page.execute("c0", waits)
            await page.messages(lambda one: one["msg_type"] == "stream")
            during = server.activity()["busy"]
            (server.home / "go").touch()
            await page.finished(execution)
        return during, server.activity()["busy"]

    assert asyncio.run(scenario()) == (True, False)


def test_a_killed_kernel_ends_its_cell_and_keeps_the_output(server: NotebookServer) -> None:
    server.write("killed.ipynb", "1")

    async def scenario() -> None:
        async with follower(server) as log, client(server, server.session("killed.ipynb")) as page:
            await log.follow("killed.ipynb")
            await page.execute("c0", KILLS_ITSELF)
            await log.operations()

    asyncio.run(scenario())
    assert _text(server.content("killed.ipynb")) == "1\n"


def test_a_new_server_has_the_outputs_of_one_that_was_killed(tmp_path: Path) -> None:
    with running(tmp_path / "home") as first:
        first.write("a.ipynb", "1")

        async def scenario() -> None:
            async with client(first, first.session("a.ipynb")) as page:
                await page.execute("c0", "print(1, flush=True)\nimport time; time.sleep(60)")
                await page.messages(lambda one: one["msg_type"] == "stream")

        asyncio.run(scenario())
        first.process.kill()
    with running(tmp_path / "home") as second:
        assert _text(second.content("a.ipynb")) == "1\n"
        assert second.content("a.ipynb")["metadata"]["regatta"]["running"] == []


def test_the_person_is_the_one_that_the_portal_names(server: NotebookServer) -> None:
    answer = server.http.get("api/me", headers={"X-Regatta-Person": "Ada"})
    assert answer.json()["identity"]["name"] == "Ada"
    assert "set-cookie" not in answer.headers
