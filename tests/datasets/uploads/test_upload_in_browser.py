"""Upload of files from a real browser to a sealed version: paused, the page reloaded, and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from playwright.sync_api import Page, Route, expect
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from datasets import manifest, services
from datasets.indexing import indexing
from datasets.models import Version
from tests.browser import Watch
from tests.datasets.conftest import Uploader
from tests.personas import Personas, make_personas
from tests.waiting import until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PART = 64 * 1024
ROWS = b"number,text\n" + b"".join(b"%d,some words to make it longer\n" % number for number in range(20_000))
PARTS = -(-len(ROWS) // PART)


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> Personas:
    monkeypatch.setattr(manifest, "part_size_for", lambda size: PART)
    people = make_personas()
    services.create_dataset(actor=people.developer, namespace_name="team", name="mine")
    return people


@pytest.fixture
def developer(people: Personas, watch: Watch, page: Page, live_server: LiveServer, settings: Settings) -> Page:
    """The developer's browser."""
    client = Client()
    client.force_login(people.developer)
    name = settings.SESSION_COOKIE_NAME
    watch.context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": live_server.url}])
    return page


class Line:
    """Counts the parts that are sent, and lets the given number through; the others hang."""

    def __init__(self, page: Page, let_through: int) -> None:
        self.sent: list[int] = []
        self._left = let_through
        page.route("**/parts/*", self._meet)

    def _meet(self, route: Route) -> None:
        self.sent.append(int(route.request.url.rpartition("/")[2]))
        if self._left:
            self._left -= 1
            route.continue_()


def stored_parts() -> set[int]:
    return set(Version.objects.get().files.get().parts.values_list("number", flat=True))


def choose(page: Page, *paths: Path) -> None:
    page.locator("data-upload input[type=file]").first.set_input_files(list(paths))


@pytest.mark.invariant("A browser sends no stored part again after a pause or a reload.")
def test_an_upload_that_was_paused_goes_on_after_the_page_was_loaded_anew(
    developer: Page, live_server: LiveServer, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(ROWS)
    Line(developer, let_through=3)
    developer.goto(f"{live_server.url}/datasets/team/mine/upload")
    choose(developer, path)
    expect(developer.get_by_role("status").filter(has_text="192 KiB of")).to_be_visible()
    until("they are stored", lambda: len(stored_parts()) == 3)
    developer.get_by_role("button", name="Pause").click()
    expect(developer.get_by_role("button", name="Continue")).to_be_visible()
    there = stored_parts()

    developer.unroute_all()
    again = Line(developer, let_through=10_000)
    developer.reload()
    expect(developer.get_by_role("status").first).to_contain_text(
        "Choose the same files again to continue. Missing: rows.csv"
    )
    choose(developer, path)
    expect(developer.get_by_role("status").first).to_contain_text("All files are uploaded.")
    assert sorted(again.sent) == sorted(set(range(PARTS)) - there)

    developer.get_by_role("button", name="Seal the version").click()
    expect(developer.get_by_role("status").first).to_contain_text("Indexing")
    indexing.index(Version.objects.get().pk)
    expect(developer.get_by_role("heading", name="First records")).to_be_visible()
    expect(developer.get_by_role("cell", name="some words to make it longer").first).to_be_visible()


def test_a_folder_is_dropped_and_a_conflicting_file_is_removed(
    developer: Page, live_server: LiveServer, tmp_path: Path
) -> None:
    for name in ("set/.hidden", "set/train/a.txt", "set/b.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "b.txt").write_text("another one")
    developer.goto(f"{live_server.url}/datasets/team/mine/upload")
    developer.locator("data-upload input[webkitdirectory]").set_input_files(tmp_path / "set")
    expect(developer.get_by_role("status").first).to_contain_text("All files are uploaded.")
    files = Version.objects.get().files
    assert set(files.values_list("path", flat=True)) == {"train/a.txt", "b.txt"}

    developer.reload()
    choose(developer, tmp_path / "b.txt")
    developer.get_by_role("button", name="Remove the other file").click()
    expect(developer.locator("data-upload").get_by_role("row", name="b.txt")).to_contain_text("uploaded")
    assert files.get(path="b.txt").size == len("another one")


def test_the_page_of_a_dataset_updates_itself_when_a_version_is_indexed(
    developer: Page, people: Personas, live_server: LiveServer
) -> None:
    uploader = Uploader(people.developer)
    uploader.begin()
    uploader.upload("rows.csv", b"number,text\n1,ada\n")
    version = uploader.seal()
    developer.goto(f"{live_server.url}/datasets/team/mine?version={version.number}")
    expect(developer.get_by_text("Indexing: records are counted")).to_be_visible()

    # If the portal is unreachable for a moment, the request is repeated.
    away = f"**/api/v1/datasets/team/mine/versions/{version.number}"
    with developer.expect_request(away):
        developer.route(away, lambda route: route.abort())
    developer.unroute(away)
    expect(developer.get_by_text("Indexing: records are counted")).to_be_visible()

    indexing.index(version.pk)
    expect(developer.get_by_role("heading", name="First records")).to_be_visible(timeout=15_000)
    expect(developer.get_by_role("cell", name="ada")).to_be_visible()
    expect(developer.get_by_text("Indexing: records are counted")).to_have_count(0)
