"""Real builds of images: buildah, pip, and the registry of REGISTRY, which has ``base/python-numpy:3.11``."""

from __future__ import annotations

import os
import subprocess
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_django import Settings

from jobs.builds import code_snapshots
from jobs.builds.images import build_request, launcher, plan
from jobs.launch.planner import BuildView
from jobs.messages import cluster as messages
from jobs.models import CodeSnapshot
from tests.messages import mentions
from tests.waiting import until

pytestmark = [pytest.mark.kube, pytest.mark.django_db, pytest.mark.timeout(600)]

FILES = {"train.py": "import tiny\n", "parts/a.py": "x = 1\n"}
_SECONDS = 300.0


def wheel(folder: Path, name: str, content: bytes = b"SIZE = 1\n") -> None:
    """Write the wheel of a minimal package."""
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", content)
        file.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "".join(f"{about}/{each},,\n" for each in ("METADATA", "WHEEL", "RECORD")))


@pytest.fixture(scope="session")
def prefix() -> str:
    """Return the prefix of all images of this run, so that no image of an earlier run is reused."""
    return f"{os.environ['REGISTRY']}/tests/{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("buildah")


@pytest.fixture(autouse=True)
def _installation(
    settings: Settings, tmp_path: Path, storage: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DATA_DIR = tmp_path / "data"
    settings.DATA_DIR.mkdir()
    (settings.DATA_DIR / "buildah").symlink_to(storage)
    settings.STORAGE_DIR = tmp_path / "storage"
    settings.IMAGE_REGISTRY, settings.REGISTRY_INSECURE = prefix, True
    settings.BASE_IMAGE = f"{os.environ['REGISTRY']}/base/python-numpy:3.11"
    packages_dir = tmp_path / "shelf"
    packages_dir.mkdir()
    wheel(packages_dir, "tiny")
    links = " ".join(filter(None, (os.environ.get("PIP_FIND_LINKS"), str(packages_dir))))
    monkeypatch.setenv("PIP_FIND_LINKS", links)


@pytest.fixture
def code() -> Callable[..., CodeSnapshot]:
    """Return a function that stores files as a submission does."""

    def kept(**files: str) -> CodeSnapshot:
        packed = code_snapshots.pack({**FILES, **files})
        code_snapshots.keep(packed)
        return CodeSnapshot.objects.get_or_create(pk=packed.digest, defaults={"size": len(packed.body)})[0]

    return kept


def built(snapshot: CodeSnapshot, *requirements: str, namespace: str = "team") -> BuildView:
    """Poll the build until it has a result."""
    image_plan = launcher.plan_of(namespace, snapshot.pk, requirements)
    return polled(lambda: launcher.build(image_plan, snapshot), lambda view: bool(view.done or view.problem))


def polled(build: Callable[[], BuildView], enough: Callable[[BuildView], bool]) -> BuildView:
    def looked() -> BuildView | None:
        view = build()
        return view if enough(view) else None

    return until("the build has come so far", looked, _SECONDS, every=0.05, story=lambda: build().log)


def run_in(reference: str, storage: Path, *command: str) -> str:
    """Run a program in the image as the image's user; return its output."""
    buildah = ["buildah", "--root", str(storage / "root"), "--runroot", str(storage / "run")]
    name = f"try-{uuid.uuid4().hex[:8]}"
    subprocess.run([*buildah, "from", "--name", name, "--tls-verify=false", reference], check=True, capture_output=True)
    try:
        done = subprocess.run(
            [*buildah, "run", "--isolation=chroot", name, "--", *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
    finally:
        subprocess.run([*buildah, "rm", name], check=True, capture_output=True)


def test_the_image_of_a_job_has_the_runtime_the_requirements_and_the_code(
    code: Callable[..., CodeSnapshot], storage: Path
) -> None:
    view = built(code(), "tiny")
    assert view.done is not None, (view.problem, view.log)
    script = "import os, sys, tiny, numpy, runtime.dist; print(tiny.SIZE, os.getuid(), sys.prefix, os.listdir('.'))"
    output = run_in(view.done.image, storage, str(view.done.python), "-c", script)
    assert output.split()[:3] == ["1", str(plan.USER), str(plan.ENVIRONMENT)]
    assert "train.py" in output
    platform = "import runtime.agent.supervisor, runtime.coordination.etcd, runtime.master, runtime.pserver; print(1)"
    assert run_in(view.done.image, storage, str(launcher.PYTHON), "-c", platform) == "1\n"


def compiled_at_the_start(reference: str, storage: Path, python: str, modules: str) -> list[str]:
    """Return the source files that Python compiles when it imports the modules in the image."""
    output = run_in(reference, storage, "sh", "-c", f"{python} -v -c 'import {modules}' 2>&1")
    assert f"import '{modules.split(', ')[0]}'" in output
    return [line for line in output.splitlines() if line.startswith("# code object from ") and line.endswith(".py")]


@pytest.mark.invariant(
    "The image of a job contains the compiled bytecode of all that its processes import when they start."
)
def test_what_each_process_starts_with_is_compiled_in_the_image(
    code: Callable[..., CodeSnapshot], storage: Path
) -> None:
    view = built(code(), "tiny")
    assert view.done is not None, (view.problem, view.log)
    platform = "json, numpy, runtime.agent.supervisor, runtime.coordination.etcd, runtime.master, runtime.pserver"
    assert compiled_at_the_start(view.done.image, storage, str(launcher.PYTHON), platform) == []
    assert compiled_at_the_start(view.done.image, storage, str(view.done.python), "tiny, runtime.dist") == []


@pytest.mark.invariant("An unchanged job builds no image.")
def test_an_unchanged_job_builds_nothing(code: Callable[..., CodeSnapshot]) -> None:
    assert built(code(), "tiny").done is not None
    snapshot = code()
    image_plan = launcher.plan_of("team", snapshot.pk, ("tiny",))
    assert launcher.build(image_plan, snapshot).done is not None  # at the first call
    assert not (launcher.images_directory() / image_plan.tag).exists()


@pytest.mark.invariant("A job whose code alone changed installs no packages.")
def test_a_job_whose_code_alone_has_changed_installs_nothing(code: Callable[..., CodeSnapshot]) -> None:
    assert built(code(), "tiny").done is not None
    view = built(code(**{"train.py": "import tiny  # again\n"}), "tiny")
    assert view.done is not None
    assert [line.split()[0] for line in view.log] == ["Making", "Made"]


def test_a_failed_installation_is_reported_with_pips_output_and_can_be_retried(
    code: Callable[..., CodeSnapshot], storage: Path
) -> None:
    snapshot = code()
    view = built(snapshot, "tiny==2.0")
    assert mentions(view.problem, messages.REQUIREMENTS_NOT_INSTALLED)
    assert "No matching distribution found for tiny==2.0" in view.problem
    assert any("tiny==2.0" in line for line in view.log)
    assert not list(launcher.images_directory().glob("*"))
    assert built(snapshot, "tiny==2.0").problem == view.problem


def test_requirements_that_are_too_large_are_refused_with_the_limit(
    code: Callable[..., CodeSnapshot], settings: Settings, tmp_path: Path
) -> None:
    wheel(tmp_path / "shelf", "huge", os.urandom(3 * 1024**2))
    assert built(code()).done is not None  # the limit below does not apply to the runtime
    settings.IMAGE_LIMIT_BYTES = 2 * 1024**2
    assert mentions(built(code(), "huge").problem, messages.REQUIREMENTS_TOO_LARGE, size="0.00195")


def test_a_build_that_takes_too_long_is_stopped_with_the_limit(
    code: Callable[..., CodeSnapshot], settings: Settings
) -> None:
    assert built(code()).done is not None
    settings.BUILD_SECONDS = 1.0
    assert built(code(), "tiny", "numpy").problem == messages.IMAGE_BUILD_TIMED_OUT(count=1)


def test_the_build_of_an_image_that_is_not_needed_any_more_stops(
    code: Callable[..., CodeSnapshot], tmp_path: Path
) -> None:
    wheel(tmp_path / "shelf", "unwanted")
    snapshot = code()
    image_plan = launcher.plan_of("team", snapshot.pk, ("unwanted",))
    polled(lambda: launcher.build(image_plan, snapshot), lambda view: any("Making" in line for line in view.log))
    folder = launcher.images_directory() / image_plan.tag
    launcher.give_up(image_plan)
    until("its processes have ended", lambda: not processes_of(folder))
    assert not (folder / build_request.OUTCOME).exists()
    assert built(snapshot, "unwanted").done is not None


def processes_of(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
        except OSError:
            continue
        if str(folder).encode() in line or folder.name.encode() in line:
            found.append(line.decode(errors="replace"))
    return found


def test_a_base_image_that_cannot_run_the_platform_is_reported_with_a_message(
    code: Callable[..., CodeSnapshot], settings: Settings
) -> None:
    settings.BASE_IMAGE = f"{os.environ['REGISTRY']}/base/python:3.11"
    view = built(code())
    assert mentions(view.problem, messages.BASE_IMAGE_UNUSABLE)
    assert "libstdc++" in view.problem


def test_a_missing_base_image_is_reported_with_a_message(code: Callable[..., CodeSnapshot], settings: Settings) -> None:
    settings.BASE_IMAGE = f"{os.environ['REGISTRY']}/base/nothing:1"
    assert mentions(built(code()).problem, messages.BASE_IMAGE_NOT_PULLED)


def test_of_two_jobs_that_need_the_same_packages_at_once_one_installs_them(
    code: Callable[..., CodeSnapshot], tmp_path: Path
) -> None:
    wheel(tmp_path / "shelf", "shared")
    one, other = code(), code(**{"train.py": "import shared\n"})
    first = launcher.plan_of("team", one.pk, ("shared",))
    polled(lambda: launcher.build(first, one), lambda view: any("Making" in line for line in view.log))
    second = built(other, "shared")
    assert second.done is not None
    assert not any(line.startswith(f"Making {first.images[-2].reference}") for line in second.log)
    assert built(one, "shared").done is not None


def test_nothing_of_the_index_s_settings_stays_in_the_image(
    code: Callable[..., CodeSnapshot], storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://someone:s3cret-of-the-index@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    view = built(code(), "tiny")
    assert view.done is not None, view
    environment = run_in(view.done.image, storage, "env")
    assert "PIP_" not in environment
    left = run_in(view.done.image, storage, "sh", "-c", "ls -A /tmp /tmp/regatta-build; grep -rl s3cret /opt || true")
    assert "s3cret" not in "\n".join(view.log)
    assert left.split() == ["/tmp:", "regatta-build", "/tmp/regatta-build:"]
