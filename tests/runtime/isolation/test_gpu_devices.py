"""Device files of GPUs, and the variables for CUDA."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.isolation import gpu_devices

INFORMATION = """Model: \t\t NVIDIA H100
IRQ:   \t\t 37
GPU UUID: \t GPU-{uuid}
Bus Location: \t 0000:00:0{minor}.0
Device Minor: \t {minor}
"""


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    for name in ("nvidiactl", "nvidia0", "nvidia1", "nvidia10", "nvidia-uvm", "nvidia-modeset", "nvidia-caps", "null"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture
def information(tmp_path: Path) -> Path:
    for minor, uuid in ((0, "aaaa-00"), (1, "bbbb-11")):
        place = tmp_path / "gpus" / f"0000:00:0{minor}.0"
        place.mkdir(parents=True)
        (place / "information").write_text(INFORMATION.format(minor=minor, uuid=uuid))
    return tmp_path / "gpus"


def test_the_gpus_of_a_machine_are_its_numbered_devices_in_order(devices: Path) -> None:
    assert gpu_devices.present(devices) == [0, 1, 10]


def test_without_the_driver_there_is_no_gpu(devices: Path) -> None:
    (devices / "nvidiactl").unlink()
    assert gpu_devices.present(devices) == []


def test_a_process_gets_the_common_devices_and_those_of_its_gpus(devices: Path) -> None:
    assert [Path(path).name for path in gpu_devices.files([1], devices)] == ["nvidiactl", "nvidia-uvm", "nvidia1"]


def test_a_process_without_gpus_gets_no_device(devices: Path) -> None:
    assert gpu_devices.files([], devices) == []


@pytest.mark.parametrize("alone", [True, False])
def test_cuda_finds_gpus_by_their_uuids(information: Path, alone: bool) -> None:
    found = gpu_devices.variables([1, 0], alone=alone, information=information)
    assert found == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "GPU-bbbb-11,GPU-aaaa-00"}


@pytest.mark.parametrize(("alone", "names"), [(True, "0,1"), (False, "2,0")])
def test_without_uuids_cuda_counts_the_devices_that_the_process_sees(tmp_path: Path, alone: bool, names: str) -> None:
    assert gpu_devices.variables([2, 0], alone=alone, information=tmp_path)["CUDA_VISIBLE_DEVICES"] == names


def test_a_process_without_gpus_finds_none(tmp_path: Path) -> None:
    assert gpu_devices.variables([], alone=False, information=tmp_path)["CUDA_VISIBLE_DEVICES"] == ""
