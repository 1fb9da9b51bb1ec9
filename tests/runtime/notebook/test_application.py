"""The configuration of JupyterLab's pages and the places of its extensions."""

from __future__ import annotations

from pathlib import Path

from runtime.notebook.application import shared_files, without_disabled


def test_plugins_that_ask_other_hosts_are_disabled_beside_those_that_files_disable() -> None:
    page_config = without_disabled(None, {"disabledExtensions": ["mine"], "baseUrl": "/"})
    assert page_config["disabledExtensions"] == [
        "mine",
        "@jupyterlab/apputils-extension:announcements",
        "@jupyterlab/extensionmanager-extension",
    ]
    assert page_config["baseUrl"] == "/"


def test_extensions_of_packages_in_another_environment_are_found(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    shared = tmp_path / "share" / "jupyter"
    shared.mkdir(parents=True)
    assert shared_files(["/code", str(packages), str(packages), "/missing/lib/python3.11/site-packages"]) == [shared]
