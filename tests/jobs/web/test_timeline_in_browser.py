"""Events of a job are shown on its page as messages in the reader's language."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from jobs.models import Job
from jobs.selectors import timeline
from jobs.services import replica_reports
from runtime.checkpoint import writer
from runtime.checkpoint.filesystem import LocalFiles
from runtime.checkpoint.index import Book
from runtime.coordination.base import StoreUnavailable
from runtime.coordination.embedded import EmbeddedStore
from runtime.coordination.etcd import EtcdStore
from runtime.coordination.etcd_address import EtcdAddress
from runtime.master.listener import Reception
from runtime.master.queue.task_queue import TaskQueue
from runtime.master.queue_store import Ledger
from runtime.master.server import Master
from runtime.master.types import Happening, Key, Plan
from runtime.parameters.sharding import even_table
from runtime.pserver import checkpointer
from runtime.pserver.checkpointer import Identity
from runtime.pserver.shard import Shard
from tests.factories import make_attempt
from tests.personas import Personas
from tests.runtime.checkpoint.conftest import Writer, blocks
from tests.runtime.master.queue.test_task_queue import X, Y, table_of

Fact = tuple[str, str]

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def of_an_etcd_that_is_away(_: Path) -> Fact:
    """Return the event of the master when etcd is unreachable."""
    store, happenings = EtcdStore(EtcdAddress(("127.0.0.1:9",), "/site")), list[Happening]()
    with contextlib.closing(Reception()) as reception, pytest.raises(StoreUnavailable):
        Master(Plan(1), table_of(1), Ledger(store, "/"), happenings.extend, reception, patience=0.0)
    store.close()
    return happenings[0].kind, happenings[0].text


def of_a_straggler(_: Path) -> Fact:
    """Return the event of the master when a slow trainer's task is also assigned to another trainer."""
    queue = TaskQueue.begin(Plan(1, sync=False, trainers=2), table_of(2), 0.0)
    queue.members([X, Y], 0.0)
    queue.get(X, 1, None, 0.0)
    quick = queue.get(Y, 1, None, 0.0)
    queue.done(Key(quick.pass_id, quick.task_id, quick.epoch, Y), 20.0)  # type: ignore[union-attr]
    queue.get(Y, 2, None, 40.0)
    happening = queue.happenings[-1]
    return happening.kind, happening.text


def of_a_damaged_checkpoint(directory: Path) -> Fact:
    """Return the event of a parameter server whose checkpoint is truncated."""
    store, files, recorded = EmbeddedStore(directory / "store.db"), LocalFiles(directory / "checkpoints"), list[Fact]()
    book, owner = Book(store, "job", 1, 1), Writer(store)
    entry = writer.save(files, book, owner.header(4), blocks(4), owner.owner, 1.0)
    (files.directory / entry.file).write_bytes((files.directory / entry.file).read_bytes()[:-9])
    shard, identity = Shard(0, even_table(1), 1), Identity("job", 0, 1)
    checkpointer.restore(
        shard, identity, [(files, book.generation())], "sync", lambda *fact: recorded.append(fact), 0.0
    )
    store.close()
    return recorded[0]


@pytest.mark.parametrize(
    ("language", "words"),
    [
        (
            "en",
            [
                ("Coordination", "Meanwhile, trainers continue with the tasks that they have."),
                ("Task", "Task 0 has been running on trainer-0 for 40 s (20 s is usual); trainer-1 runs it too"),
                ("Warning", "(version 4 of parameter server 0) cannot be used: it is truncated after"),
            ],
        ),
        (
            "zh-hans",
            [
                ("协调存储", "未响应"),
                ("任务", "已在 trainer-0 上运行 40 秒（通常为 20 秒）"),
                ("警告", "（参数服务器 0 的版本 4）不可用："),
            ],
        ),
    ],
)
def test_an_etcd_outage_a_straggler_and_a_damaged_checkpoint_are_reported(
    language: str,
    words: list[tuple[str, str]],
    page: Page,
    live_server: LiveServer,
    personas: Personas,
    submit: Callable[..., Job],
    tmp_path: Path,
) -> None:
    job = submit()
    facts = [fact(tmp_path) for fact in (of_an_etcd_that_is_away, of_a_straggler, of_a_damaged_checkpoint)]
    events = [(1_700_000_000.0 + at, *fact) for at, fact in enumerate(facts)]
    replica_reports.record_events(make_attempt(job), replica="master-0", first=1, events=events)
    sign_in(page, live_server, personas, language)
    page.goto(f"{live_server.url}/n/team/jobs/{job.pk}#events")
    for (kind, _text), (label, message) in zip(facts, words, strict=True):
        row = page.locator(f".timeline [data-happening={kind}]")
        expect(row.locator("strong")).to_have_text(label)
        expect(row).to_contain_text(message)


def test_older_events_appear_when_they_are_requested(
    page: Page, live_server: LiveServer, personas: Personas, submit: Callable[..., Job]
) -> None:
    job = submit()
    events = [(1_700_000_000.0 + at, "task", f"number {at}") for at in range(timeline.PAGE + 100)]
    replica_reports.record_events(make_attempt(job), replica="master-0", first=1, events=events)
    sign_in(page, live_server, personas, "en")
    page.goto(f"{live_server.url}/n/team/jobs/{job.pk}#events")
    rows, older = page.locator(".timeline li"), page.get_by_role("button", name="Older events")
    expect(rows).to_have_count(timeline.PAGE)
    expect(rows.filter(has_text="number 0")).to_have_count(0)
    older.click()
    expect(rows).to_have_count(len(events) + 1)  # and the change of state of the submission, which is the newest
    expect(rows.first).to_contain_text("number 0")
    expect(older).to_have_count(0)


def sign_in(page: Page, live_server: LiveServer, personas: Personas, language: str) -> None:
    session = personas.client("developer").cookies[settings.SESSION_COOKIE_NAME].value
    cookies = {settings.SESSION_COOKIE_NAME: session, settings.LANGUAGE_COOKIE_NAME: language}
    page.context.add_cookies(
        [{"name": name, "value": value, "url": live_server.url} for name, value in cookies.items()]
    )
