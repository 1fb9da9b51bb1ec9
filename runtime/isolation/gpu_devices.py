"""Device files of NVIDIA GPUs, and the variables by which CUDA finds the ones of a replica.

A process uses a GPU through the driver's common devices and the GPU's own. One that sees only some of the GPUs' devices
finds only those GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

DEVICES = Path("/dev")
_COMMON = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_GPU = re.compile(r"nvidia(\d+)")
# Of the driver, one directory per GPU.
_INFORMATION = Path("/proc/driver/nvidia/gpus")
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)\s*$", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)


def present(devices: Path = DEVICES) -> list[int]:
    """Return the minor numbers of the machine's GPUs, in order: 0 for ``/dev/nvidia0``."""
    if not (devices / "nvidiactl").exists():
        return []
    return sorted(int(found[1]) for path in devices.glob("nvidia*") if (found := _GPU.fullmatch(path.name)))


def files(minors: Sequence[int], devices: Path = DEVICES) -> list[str]:
    """Return the existing device files that a process needs in order to use these GPUs; none for no GPU."""
    names = [*_COMMON, *(f"nvidia{minor}" for minor in minors)] if minors else []
    return [str(devices / name) for name in names if (devices / name).exists()]


def variables(minors: Sequence[int], *, alone: bool, information: Path = _INFORMATION) -> dict[str, str]:
    """Return the variables that limit CUDA to these GPUs.

    They are named by their UUIDs if the driver reports them. Otherwise ``alone`` decides: a process that sees only the
    devices of these GPUs counts them from 0.
    """
    uuids = dict(_uuids(information.glob("*/information")))
    names = [uuids.get(minor, "") for minor in minors]
    if not all(names):
        names = [str(place if alone else minor) for place, minor in enumerate(minors)]
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(names)}


def _uuids(paths: Iterable[Path]) -> Iterable[tuple[int, str]]:
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        minor, uuid = _MINOR.search(text), _UUID.search(text)
        if minor and uuid:
            yield int(minor[1]), uuid[1]
