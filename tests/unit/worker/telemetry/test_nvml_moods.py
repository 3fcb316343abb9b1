"""What is told of GPUs that are well, lost, forbidden, divided, hung, or not there at all."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.until import until

if TYPE_CHECKING:
    from tests.unit.worker.telemetry.conftest import GpuProcess

FIRST = "GPU-00000000-0000-0000-0000-000000000000"
SECOND = "GPU-00000001-0000-0000-0000-000000000000"
PART = "MIG-00000001-0000-0000-0000-000000000002"


def uuids(found: dict[str, object]) -> list[str]:
    return [gpu["uuid"] for gpu in found["gpus"]]  # type: ignore[index, attr-defined]


def test_two_healthy_gpus_are_listed_with_their_memory(gpus: GpuProcess) -> None:
    found = gpus.inventory()
    assert found["state"] == ""
    assert [(g["uuid"], g["index"], g["name"]) for g in found["gpus"]] == [
        (FIRST, 0, "Fake 80"),
        (SECOND, 1, "Fake 80"),
    ]
    assert found["gpus"][0]["memory_total_bytes"] == 80 << 30


def test_cuda_visible_devices_chooses_by_index_uuid_or_beginning(gpus: GpuProcess) -> None:
    def visible(setting: str) -> list[str]:
        return uuids(gpus.inventory(CUDA_VISIBLE_DEVICES=setting))

    assert visible("1") == [SECOND]
    assert visible("1,0") == [SECOND, FIRST]
    assert visible(SECOND) == [SECOND]
    assert visible("GPU-00000001") == [SECOND]
    assert visible("GPU-0000000") == []  # begins two of them
    assert visible("0,7,1") == [FIRST]  # as CUDA: what stands behind a wrong one is not seen
    assert visible("-1") == []
    assert visible("0,0") == [FIRST]


def test_a_setting_that_hides_all_gpus_is_named(gpus: GpuProcess) -> None:
    found = gpus.inventory(CUDA_VISIBLE_DEVICES="")
    assert found == {
        "state": "n/a: CUDA_VISIBLE_DEVICES hides all GPUs",
        "gpus": [],
        "unreadable": [],
    }


def test_a_divided_gpu_is_listed_as_its_instances(gpus: GpuProcess) -> None:
    gpus.fake.tell(gpus=2, mig=1)
    found = gpus.inventory()
    parts = [gpu for gpu in found["gpus"] if gpu["parent_uuid"]]
    assert uuids(found)[0] == FIRST
    assert [part["parent_uuid"] for part in parts] == [SECOND, SECOND]
    assert parts[1]["uuid"] == PART
    assert parts[0]["memory_total_bytes"] == 40 << 30
    assert uuids(gpus.inventory(CUDA_VISIBLE_DEVICES=PART)) == [PART]
    assert len(uuids(gpus.inventory(CUDA_VISIBLE_DEVICES="1"))) == 2


def test_the_instances_of_a_divided_gpu_are_read_without_the_whole_gpus_sensors(
    gpus: GpuProcess,
) -> None:
    gpus.fake.tell(gpus=2, mig=1, utilization=80, memory_mb=1024)
    whole, first, _second = gpus.read()["gpus"]
    assert whole["utilization"] == 0.8
    assert first["utilization"] is None
    assert first["memory_used_bytes"] == 1 << 30
    assert first["power_w"] == 250.0  # of the GPU that it is a part of
    assert first["state"] == ""


def test_a_reading_has_all_that_nvml_tells(gpus: GpuProcess) -> None:
    gpus.fake.tell(gpus=1, utilization=37, memory_mb=2048, pid=4711)
    reading = gpus.read()
    assert reading["state"] == ""
    assert reading["gpus"] == [
        {
            "uuid": FIRST,
            "index": 0,
            "name": "Fake 80",
            "utilization": 0.37,
            "memory_used_bytes": 2 << 30,
            "memory_total_bytes": 80 << 30,
            "power_w": 250.0,
            "temperature_c": 61.0,
            "sm_clock_mhz": 1410.0,
            "processes": [{"pid": 4711, "memory_bytes": 512 << 20}],
            "parent_uuid": "",
            "state": "",
        }
    ]


def test_a_gpu_that_is_lost_stays_in_the_picture_and_comes_back(gpus: GpuProcess) -> None:
    gpus.read()
    gpus.fake.tell(gpus=2, utilization=80, lost=1)
    for pass_s in (1.0, 120.0):  # the second reading lists the GPUs anew
        first, second = gpus.read(pass_s=pass_s)["gpus"]
        assert (first["state"], first["utilization"]) == ("", 0.8)
        assert (second["uuid"], second["state"]) == (SECOND, "lost")
        assert second["utilization"] is None
    assert gpus.inventory()["unreadable"] == ["GPU 1: lost"]
    gpus.fake.tell(gpus=2, utilization=80)
    assert [gpu["state"] for gpu in gpus.read(pass_s=120.0)["gpus"]] == ["", ""]


def test_a_gpu_that_must_not_be_read_says_so(gpus: GpuProcess) -> None:
    gpus.fake.tell(gpus=1, forbidden=0)
    found = gpus.inventory()
    assert found["state"] == "n/a: GPU 0: no permission"
    gpus.fake.tell(gpus=1)
    gpus.read()
    gpus.fake.tell(gpus=1, forbidden=0)
    assert gpus.read()["gpus"][0]["state"] == "no permission"


def test_a_driver_that_refuses_or_is_not_loaded_is_named(gpus: GpuProcess) -> None:
    gpus.fake.tell(init=9)
    assert gpus.inventory()["state"] == "n/a: driver not loaded"
    reading = gpus.read()
    assert (reading["state"], reading["gpus"]) == ("n/a: driver not loaded", [])
    assert 0 < reading["stands_s"] <= 60.0, "nobody needs to ask again before"
    gpus.fake.tell(init=4)
    assert gpus.inventory()["state"] == "n/a: no permission"
    gpus.fake.tell(init=999)
    assert "n/a: " in gpus.inventory()["state"]
    gpus.fake.tell(gpus=0)
    assert gpus.inventory()["state"] == "n/a: no GPU"
    gpus.fake.tell(gpus=1)
    assert uuids(gpus.read(pass_s=120.0)) == [FIRST]  # loaded later: seen within a minute


def test_a_host_without_a_driver_is_named() -> None:
    code = (
        "import pynvml, ctypes\n"
        "pynvml.CDLL = lambda name: ctypes.CDLL('no-such-driver.so')\n"
        "from jupyter_ddl.store.nvml import inventory\n"
        "print(inventory().state)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "n/a: no NVIDIA driver\n"


def test_a_hung_driver_is_told_of_at_once_and_again_read_when_it_answers(gpus: GpuProcess) -> None:
    assert gpus.read()["state"] == ""
    gpus.fake.tell(gpus=2, hang_s=3600)
    for _ in range(3):
        reading = gpus.read(timeout_s=0.1)
        assert reading["state"] == "n/a: NVML does not answer"
        assert [(g["uuid"], g["utilization"]) for g in reading["gpus"]] == [
            (FIRST, None),
            (SECOND, None),
        ]
    gpus.fake.tell(gpus=2, utilization=33, hang_s=0)
    until(lambda: gpus.read()["state"] == "", 10.0, "an answer of NVML")
    assert gpus.read()["gpus"][0]["utilization"] == 0.33
