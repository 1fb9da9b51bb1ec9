"""Choice of portal, account and namespace."""

from __future__ import annotations

from pathlib import Path

import pytest

from regatta import config
from regatta.config import Context, Settings
from regatta.errors import BadFile, NoSuchContext

HOME = Context("http://home", "rgt_home", "ada")
WORK = Context("http://work", "rgt_work", "vision")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    config.save(Settings("home", {"home": HOME, "work": WORK}), kept)
    return kept


def test_saved_settings_are_read_back(environ: dict[str, str]) -> None:
    assert config.load(environ) == Settings("home", {"home": HOME, "work": WORK})


def test_the_order_is_option_environment_project_file(environ: dict[str, str], tmp_path: Path) -> None:
    assert config.in_use("", environ, tmp_path) == HOME
    (tmp_path / ".regatta.yaml").write_text("context: work\n")
    assert config.in_use("", environ, tmp_path) == WORK
    assert config.in_use("", {**environ, config.CONTEXT: "home"}, tmp_path) == HOME
    assert config.in_use("work", {**environ, config.CONTEXT: "home"}, tmp_path) == WORK


def test_the_file_of_a_project_is_found_from_a_folder_below(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".regatta.yaml").write_text("namespace: robots\n")
    (tmp_path / "src" / "deep").mkdir(parents=True)
    assert config.in_use("", environ, tmp_path / "src" / "deep").namespace == "robots"


def test_a_project_names_no_server(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".regatta.yaml").write_text("server: http://evil\n")
    with pytest.raises(BadFile, match="may only contain context and namespace"):
        config.in_use("", environ, tmp_path)


def test_a_stored_token_is_sent_to_its_own_server_alone(environ: dict[str, str], tmp_path: Path) -> None:
    assert config.in_use("", {**environ, config.SERVER: "http://elsewhere"}, tmp_path).token == ""
    assert config.in_use("", {**environ, config.SERVER: "http://home/"}, tmp_path).token == "rgt_home"


def test_an_unknown_context_is_an_error_that_lists_the_known_ones(environ: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(NoSuchContext, match="Known contexts: home, work"):
        config.in_use("wrok", environ, tmp_path)


def test_without_a_file_the_portal_of_this_machine_is_used(tmp_path: Path) -> None:
    assert config.in_use("", {"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path) == Context("http://127.0.0.1:8000")


@pytest.mark.parametrize("text", ["[", "- a list", "contexts: [home]", "contexts: {home: 1}"])
def test_a_broken_file_is_an_error_with_a_remedy(environ: dict[str, str], tmp_path: Path, text: str) -> None:
    config.path(environ).write_text(text)
    with pytest.raises(BadFile, match="Sign in again with `regatta login`, or remove"):
        config.load(environ)


def test_a_printed_context_shows_no_token() -> None:
    assert "rgt_home" not in repr(HOME)
