"""Programs that tests call are found where they are called, and looked up in the table of packages."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def check_programs(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import check_programs

    return check_programs


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.py", 'import subprocess\nsubprocess.run(["curl", "-s"])', [(2, "curl")]),
        ("a.py", 'command = ["curl", url]\nsubprocess.Popen([*command, "x"])', [(2, "curl")]),
        (
            "a.py",
            'class A:\n    def f(self):\n        self._c = ["etcd"]\n        subprocess.run(self._c)',
            [(4, "etcd")],
        ),
        ("a.py", 'shutil.which("chromium")', [(1, "chromium")]),
        ("a.py", 'NAMES = ("etcd", "openssl")\nall(shutil.which(n) for n in NAMES)', [(2, "etcd"), (2, "openssl")]),
        ("a.py", 'command = f"openssl req -x {path}"\nsubprocess.run(command.split())', [(2, "openssl")]),
        ("a.py", 'subprocess.run([sys.executable, "train.py"])', []),
        ("a.py", 'run("login")\nwords = ["curl"]', []),
        ("a.sh", "set -eu\nx=$(curl --silent a | jq .b)\n", [(1, "set"), (2, "curl"), (2, "jq")]),
    ],
)
def test_a_program_is_found_where_it_is_called(
    check_programs,  # type: ignore[no-untyped-def]
    tmp_path: Path,
    name: str,
    text: str,
    found: list[tuple[int, str]],
) -> None:
    (tmp_path / name).write_text(text)
    assert sorted(check_programs.called(tmp_path / name)) == found


def test_the_table_of_packages_names_their_programs(check_programs) -> None:  # type: ignore[no-untyped-def]
    assert check_programs.named("declare -A command_of=([etcd-server]=etcd [gettext]=msgfmt)\n") == {"etcd", "msgfmt"}


def test_a_program_that_nothing_installs_is_named_with_its_place(check_programs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "system_packages.sh").write_text("declare -A command_of=([curl]=curl)\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text('subprocess.run(["dpkg", "-l"])\nsubprocess.run(["curl"])\n')
    [problem] = check_programs.unnamed(tmp_path)
    assert problem.startswith("tests/test_a.py:1 calls dpkg, which nothing installs.")


def test_every_program_of_the_tests_is_installed(check_programs) -> None:  # type: ignore[no-untyped-def]
    assert list(check_programs.unnamed(ROOT)) == []
