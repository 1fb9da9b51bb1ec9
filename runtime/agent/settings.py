"""Settings of the agent, read from its environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runtime import contract
from runtime.isolation.network import Network

# The process gets nothing else of the agent's environment.
_PASSED_ON = ("PATH", "LANG", "TZ", "POD_IP", "TRAINING_ROLE", "TRAINER_PORTS_NUM", "RANK", "WORLD_SIZE")
_PASSED_ON_PREFIXES = (
    *("LC_", "PYTHON", "OMP_", "OPENBLAS_", "MKL_", "MALLOC_", "REGATTA_"),
    # Variables by which the processes of PaddlePaddle and PyTorch find one another.
    *("PADDLE_", "MASTER_", "LOCAL_", "GLOO_"),
)
_IMPORT_PATH = "PYTHONPATH"


@dataclass(frozen=True)
class Settings:
    """Typed settings, with the environment for the process."""

    job_id: str
    attempt_id: str
    attempt: int
    role: str
    index: int
    start_number: int
    directory: Path
    work: Path
    output: Path
    temporary: Path
    home: Path | None
    ingest_url: str
    coordination: str
    lease: float
    outage: float
    grace: float
    log_cap: int
    memory: int
    processes: int
    cpu_seconds: int
    disk: int
    sandbox: str
    run_as: int
    cgroup: Path | None
    gpus: tuple[int, ...] | None  # minor numbers of those that the process may use; None: all that it sees
    network: Network | None
    import_path: tuple[str, ...]
    cost_lines: bool
    data_path: tuple[str, ...]
    termination: Path | None
    lock_fd: int | None
    child_environment: Mapping[str, str] = field(repr=False)
    ingest_token: str = field(repr=False, default="")
    traceparent: str = ""
    control_key: bytes = field(repr=False, default=b"")
    control_port: int = 0
    hold: float = 0.0

    @property
    def replica(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def runs_user_code(self) -> bool:
        """Whether the process runs code of a user."""
        return self.sandbox != contract.NO_SANDBOX or self.role == contract.TRAINER


def read(environ: Mapping[str, str]) -> Settings:
    """Read the contract. Raises KeyError for a missing variable and ValueError for an invalid one."""
    directory = Path(environ[contract.REPLICA_DIR]).resolve()
    environment = contract.read(environ)
    lock_fd = environ.get(contract.LOCK_FD)
    return Settings(
        job_id=environ[contract.JOB_ID],
        attempt_id=environ[contract.ATTEMPT_ID],
        attempt=environment.attempt,
        role=environ[contract.ROLE],
        index=environment.index,
        start_number=int(environ.get(contract.START_NUMBER, "1")),
        directory=directory,
        work=Path(environ.get(contract.WORK_DIR) or directory / "work"),
        output=Path(environ.get(contract.OUTPUT_DIR) or directory / "output"),
        temporary=directory / "tmp",
        home=Path(given) if (given := environ.get(contract.NOTEBOOK_HOME)) else None,
        ingest_url=environ[contract.INGEST_URL],
        coordination=environ[contract.COORDINATION],
        lease=float(environ.get(contract.LEASE, contract.LEASE_SECONDS[environment.role])),
        outage=environment.outage,
        grace=float(environ.get(contract.GRACE_SECONDS, "5")),
        log_cap=int(environ.get(contract.LOG_CAP, str(64 * 1024 * 1024))),
        memory=int(environ.get(contract.LIMIT_MEMORY, "0")),
        processes=int(environ.get(contract.LIMIT_PROCESSES, "0")),
        cpu_seconds=int(environ.get(contract.LIMIT_CPU_SECONDS, "0")),
        disk=int(environ.get(contract.LIMIT_DISK, "0")),
        sandbox=_sandbox(environment.role, environ),
        run_as=int(environ.get(contract.RUN_AS, "0")),
        cgroup=Path(given) if (given := environ.get(contract.CGROUP)) else None,
        gpus=_gpus(environ),
        network=_network(environ),
        import_path=_import_path(environ),
        cost_lines=environ.get(contract.COST_LINES) == "1",
        data_path=environment.data_path,
        termination=Path(file) if (file := environ.get(contract.TERMINATION_FILE)) else None,
        lock_fd=int(lock_fd) if lock_fd else None,
        child_environment=_child_environment(environ),
        ingest_token=environ[contract.INGEST_TOKEN],
        traceparent=environ.get(contract.TRACEPARENT, ""),
        control_key=environ.get(contract.CONTROL_KEY, "").encode(),
        control_port=int(environ.get(contract.CONTROL_PORT, "0")),
        hold=float(environ.get(contract.HOLD, "0")),
    )


def _gpus(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    given = environ.get(contract.GPUS)
    return None if given is None else tuple(int(minor) for minor in given.split(",") if minor)


def _network(environ: Mapping[str, str]) -> Network | None:
    """Return the network to join. Raises ValueError if the attempt has its own and the descriptors are missing."""
    if contract.NETWORK not in environ:
        return None
    numbers = environ.get(contract.NETWORK_FDS, "").split(",")
    if environ[contract.NETWORK] not in contract.NETWORKS or len(numbers) != len(Network._fields):
        raise ValueError(f"{contract.NETWORK} and {contract.NETWORK_FDS} do not name a network")
    return Network(*map(int, numbers))


def _child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the process's environment: a short list, the user's variables, and those of the contract for its role."""
    withheld = set(contract.AGENT_ONLY)
    if contract.runs_user_code(environ[contract.ROLE], environ):
        withheld.update(contract.PLATFORM_ONLY)
    passed_on = {
        name: value
        for name, value in environ.items()
        if (name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)) and name not in withheld
    }
    theirs = json.loads(environ.get(contract.USER_ENVIRONMENT) or "{}")
    users = {str(name): str(value) for name, value in theirs.items() if not name.startswith("REGATTA_")}
    environment = passed_on | {"PYTHONUNBUFFERED": "1"} | users
    # The job's own directories come after those of the platform, which hold the runtime.
    path = [*_import_path(environ), *filter(None, users.get(_IMPORT_PATH, "").split(os.pathsep))]
    return environment | ({_IMPORT_PATH: os.pathsep.join(path)} if path else {})


def _import_path(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories of the agent's own PYTHONPATH, which the backend set."""
    return tuple(filter(None, environ.get(_IMPORT_PATH, "").split(os.pathsep)))


def _sandbox(role: str, environ: Mapping[str, str]) -> str:
    """Return how the process is confined. Raises ValueError for an unknown value: there is no default for it."""
    if not contract.runs_user_code(role, environ):
        return contract.NO_SANDBOX
    kind = environ.get(contract.SANDBOX, contract.LANDLOCK)
    if kind not in contract.SANDBOXES:
        raise ValueError(f"{contract.SANDBOX} is {kind!r}; it is one of {', '.join(contract.SANDBOXES)}")
    return kind
