"""Start of the role's process with its limits, directories, environment and sandbox."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime import contract
from runtime.agent import process_tree, sandbox, short_tmpdir
from runtime.agent.settings import Settings
from runtime.errors import TEMPORARY
from runtime.isolation import cgroup, confinement, gpu_devices, launch, launch_request, network, syscalls
from runtime.messages import training as messages

# Address space for the shared libraries that a process maps but does not fill.
_MAPPED_LIBRARIES = 1024**3
_LARGEST_FILE = 4 * 1024**3
_OPEN_FILES = 4096
_PARAMETERS = "params.json"
_PIPE_BYTES = 1024 * 1024
# Time between the signal that warns of used-up CPU time and the signal that ends the process.
_CPU_MARGIN_SECONDS = 5


class NotStarted(Exception):
    """The process could not be started. The message gives the reason.

    ``code``: the replica's exit code, which requests a retry if the machine was short of a resource.
    """

    def __init__(self, why: str, number: int | None) -> None:
        super().__init__(messages.NOT_STARTED(why=why))
        self.code = contract.EXIT_RESTART if number in TEMPORARY else contract.EXIT_ERROR


@dataclass(frozen=True)
class Child:
    """A started process and the read ends of its output. It is the leader of its own process group.

    ``init``: the first process inside the namespaces, if the process is their launcher; the job's processes are below
    it. ``shared_memory``: the directory of the job's own shared memory. ``namespaces``: as in ``launch.Launched``.
    """

    process: subprocess.Popen[bytes]
    stdout: int
    stderr: int
    init: int | None = None
    shared_memory: int | None = None
    namespaces: tuple[int, ...] = ()

    @property
    def pid(self) -> int:
        return self.process.pid


def ruleset(settings: Settings, command: Sequence[str]) -> int:
    """Return the Landlock rules of a process without namespaces, as a descriptor.

    Raises LandlockMissing if the kernel has no Landlock. Raises NotStarted if the rules could not be created, because
    the process would run unconfined.
    """
    try:
        return sandbox.rules(settings, command)
    except OSError as error:
        raise NotStarted(f"Landlock could not be set up: {error}", error.errno) from None


def start(settings: Settings, command: Sequence[str], link: int, ruleset: int | None) -> Child:
    """Start the command. ``link`` is the inherited socket, ``ruleset`` that of a process without namespaces.

    Raises NotStarted. Must be called before any other thread runs, and from the thread that runs as long as the agent:
    the kernel kills the child when that thread ends.
    """
    entrance, pipes = -1, list[int]()
    try:
        for _ in range(2):
            pipes += _pipe()
        out, stdout, err, stderr = pipes
        if settings.cgroup is not None:
            entrance = cgroup.entrance(settings.cgroup)
        if settings.sandbox == contract.NAMESPACES:
            return _within_namespaces(settings, command, link, entrance, (out, err, stdout, stderr))
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=settings.work,
            env=environment(settings, str(short_tmpdir.make(settings.temporary))) | _address(link),
            pass_fds=(link,),
            process_group=0,
            preexec_fn=_before_exec(settings, ruleset, entrance),  # noqa: PLW1509  no other thread runs yet
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NotStarted(str(error), getattr(error, "errno", None)) from None
    finally:
        for written in pipes[1::2]:
            os.close(written)
        if entrance >= 0:
            os.close(entrance)
    return Child(process, out, err)


def _within_namespaces(
    settings: Settings, arguments: Sequence[str], link: int, entrance: int, pipes: tuple[int, int, int, int]
) -> Child:
    command = launch.Command(
        arguments=arguments,
        environment=environment(settings, launch_request.TEMPORARY) | _address(link),
        directory=str(settings.work),
        uid=settings.run_as,
        view=sandbox.visible_tree(settings, arguments),
        writable=writable(settings),
        limits=possible_limits(settings),
        inherit=[link],
        gpus=gpu_devices.files(settings.gpus or ()),
        shared_memory=settings.memory,
        cgroup=entrance,
        network=settings.network.namespaces if settings.network else (-1, -1),
    )
    out, err, stdout, stderr = pipes
    try:
        launched = launch.launch(command, stdout, stderr)
    except launch.NotLaunched as error:
        raise NotStarted(str(error), error.number) from None
    # None if it has ended already: then nothing is left to measure.
    init = next(iter(process_tree.children(launched.process.pid)), None)
    return Child(launched.process, out, err, init, launched.shared_memory, launched.namespaces)


def writable(settings: Settings) -> list[str]:
    """Return the directories in which the process may write."""
    own = [settings.work, settings.output, settings.temporary]
    return [str(path) for path in (*own, settings.home) if path is not None]


def limits(settings: Settings) -> Iterator[tuple[int, int, int]]:
    """Yield the resource limits as (resource, soft, hard)."""
    yield resource.RLIMIT_CORE, 0, 0
    yield resource.RLIMIT_FSIZE, _LARGEST_FILE, _LARGEST_FILE
    files = min(_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    yield resource.RLIMIT_NOFILE, files, files
    if settings.memory:
        # Memory that is written to counts in full; address space that is only mapped is cheap.
        yield resource.RLIMIT_DATA, settings.memory, settings.memory
        # CUDA reserves address space for the memory of all GPUs and of the machine.
        if not settings.gpus:
            yield resource.RLIMIT_AS, settings.memory + _MAPPED_LIBRARIES, settings.memory + _MAPPED_LIBRARIES
    if settings.cpu_seconds:
        yield resource.RLIMIT_CPU, settings.cpu_seconds, settings.cpu_seconds + _CPU_MARGIN_SECONDS
    user = settings.run_as or os.getuid()
    if settings.processes and user != 0:
        # A backstop only: the kernel counts all processes of the user, also those outside this job, and gives no
        # reason.
        most = _tasks_of(user) + 2 * settings.processes
        yield resource.RLIMIT_NPROC, most, most


def _address(link: int) -> dict[str, str]:
    return {contract.AGENT_FD: str(link)}


def environment(settings: Settings, temporary: str) -> dict[str, str]:
    """Return the environment of the replica's processes, which holds no secret of the platform."""
    return {
        **settings.child_environment,
        contract.WORK_DIR: str(settings.work),
        contract.OUTPUT_DIR: str(settings.output),
        "HOME": str(settings.home or settings.work),
        "TMPDIR": temporary,
        **_inspection(settings, temporary),
        **_parameters(settings, temporary),
        **_gpus(settings),
        # Otherwise each thread would reserve an arena of its own out of the limit.
        "MALLOC_ARENA_MAX": "2",
    }


def _gpus(settings: Settings) -> dict[str, str]:
    """Return the variables that limit CUDA to the replica's GPUs, if the backend decides which ones."""
    if settings.gpus is None:
        return {}
    return gpu_devices.variables(settings.gpus, alone=settings.sandbox == contract.NAMESPACES)


def _parameters(settings: Settings, temporary: str) -> dict[str, str]:
    """Write the job's parameters to a file of the replica, if it has any, and return the variable that names it."""
    text = settings.child_environment.get(contract.PARAMETERS)
    if text is None:
        return {}
    # The directory belongs to the program, which may have put a link in the place of the file before a restart.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    directory = os.open(settings.temporary, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_PARAMETERS, dir_fd=directory)
        with os.fdopen(os.open(_PARAMETERS, flags, 0o644, dir_fd=directory), "w") as file:
            file.write(text)
    finally:
        os.close(directory)
    return {contract.PARAMETERS_FILE: f"{temporary}/{_PARAMETERS}"}


def _inspection(settings: Settings, temporary: str) -> dict[str, str]:
    """Return the variables by which Python processes of the replica can be inspected (``runtime.inspection``)."""
    if not settings.control_key:
        return {}
    startup = str(Path(contract.__file__).parent / "inspection" / "startup")
    path = settings.child_environment.get("PYTHONPATH", "")
    return {contract.INSPECTION: temporary, "PYTHONPATH": os.pathsep.join(filter(None, (startup, path)))}


def _before_exec(settings: Settings, ruleset: int | None, entrance: int) -> Callable[[], None]:
    parent = os.getpid()
    bounds = possible_limits(settings)

    def prepare() -> None:
        if settings.network is not None:
            network.enter(settings.network.namespaces)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(contract.EXIT_ERROR)
        if entrance >= 0:
            cgroup.enter(entrance)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for which, soft, hard in bounds:
            resource.setrlimit(which, (soft, hard))
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        if settings.sandbox != contract.NO_SANDBOX:
            # A portal that runs as root starts jobs as root. They get no capabilities, which would bypass Landlock.
            with contextlib.suppress(OSError):
                syscalls.drop_bounding_set()
            confinement.confine(ruleset, alone=False)

    return prepare


def possible_limits(settings: Settings) -> list[tuple[int, int, int]]:
    """Return the resource limits, each at most this process's own."""
    return [_possible(*limit) for limit in limits(settings)]


def _possible(which: int, soft: int, hard: int) -> tuple[int, int, int]:
    """Return the limit, lowered to the current hard limit: a limit may be lowered but not raised."""
    ceiling = resource.getrlimit(which)[1]
    if ceiling == resource.RLIM_INFINITY:
        return which, soft, hard
    return which, min(soft, ceiling), min(hard, ceiling)


def _pipe() -> tuple[int, int]:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    # If the user's share of pipe memory is used up, the default size is enough.
    with contextlib.suppress(OSError):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(reading, False)
    return reading, writing


def _tasks_of(user: int) -> int:
    tasks = 0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if process.stat().st_uid == user:
                    tasks += (process / "task").stat().st_nlink - 2
    return tasks
