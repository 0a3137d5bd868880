"""Which devices workers get, and what is said of who holds them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from workers import config_of

from rel_batch.config import EngineConfig, RunConfig
from rel_batch.engine import Engine, EngineMemoryError
from rel_batch.errors import EngineError, LaunchError
from rel_batch.launch import devices
from rel_batch.launch.devices import Place, holders_of_visible_devices, places, visible_devices
from rel_batch.launch.engines import start_within_memory, with_less_memory

LISTED = """GPU 0: NVIDIA H200 (UUID: GPU-aaaa1111-0000)
GPU 1: NVIDIA H200 (UUID: GPU-bbbb2222-0000)
"""
SLICED = """GPU 0: NVIDIA H200 (UUID: GPU-aaaa1111-0000)
  MIG 3g.71gb     Device  0: (UUID: MIG-1111-0000)
  MIG 3g.71gb     Device  1: (UUID: MIG-2222-0000)
GPU 1: NVIDIA H200 (UUID: GPU-bbbb2222-0000)
"""


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A program of that name that lists `listed` and says that `held` is held."""

    def install(listed: str = LISTED, held: str = "", exit_code: int = 0) -> None:
        program = tmp_path / "bin" / "nvidia-smi"
        program.parent.mkdir(exist_ok=True)
        uuids = "0, GPU-aaaa1111-0000\n1, GPU-bbbb2222-0000"
        program.write_text(
            f"#!/bin/sh\ncase $1 in\n-L) cat <<'END'\n{listed}END\n;;\n"
            f"--query-gpu=*) echo '{uuids}' ;;\n"
            f"--query-compute-apps=*) echo '{held}' ;;\nesac\nexit {exit_code}\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "uses_gpus", lambda config: config.engine.kind == "vllm")
    return install


def gpu_config(folder: Path, size: int = 1) -> RunConfig:
    return config_of(folder, engine={"kind": "vllm", "tensor_parallel_size": size})


@pytest.mark.parametrize(
    ("mask", "listed", "expected"),
    [
        (None, LISTED, ["0", "1"]),
        (None, SLICED, ["MIG-1111-0000", "MIG-2222-0000", "1"]),
        ("3,5", LISTED, ["3", "5"]),
        ("GPU-aaaa1111,MIG-2222-0000", LISTED, ["GPU-aaaa1111", "MIG-2222-0000"]),
        ("2,-1,3", LISTED, ["2"]),
        ("", LISTED, []),
    ],
)
def test_a_mask_that_is_set_is_what_there_is(
    nvidia_smi: Any, mask: str | None, listed: str, expected: list[str]
) -> None:
    nvidia_smi(listed)
    assert visible_devices({} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}) == expected


@pytest.mark.parametrize(
    ("size", "workers", "mask", "expected"),
    [
        (1, None, "0,1,2,3", ["0", "1", "2", "3"]),
        (2, None, "4,5,6,7", ["4,5", "6,7"]),
        (2, 1, "4,5,6,7", ["4,5"]),
        (4, None, "0,1,2,3,4", ["0,1,2,3"]),
        (1, 2, "GPU-a,GPU-b", ["GPU-a", "GPU-b"]),
    ],
)
def test_each_worker_gets_a_group_of_its_own(
    nvidia_smi: Any, tmp_path: Path, size: int, workers: int | None, mask: str, expected: list[str]
) -> None:
    nvidia_smi()
    config = gpu_config(tmp_path, size)
    environ = {"CUDA_VISIBLE_DEVICES": mask}
    found = places(config, workers, environ)
    masks = [place.environment(config, environ)["CUDA_VISIBLE_DEVICES"] for place in found]
    assert masks == expected


def test_a_group_holds_every_stage_of_a_pipeline(nvidia_smi: Any, tmp_path: Path) -> None:
    nvidia_smi()
    engine = {"kind": "vllm", "tensor_parallel_size": 2}
    config = config_of(tmp_path, engine=engine | {"engine_args": {"pipeline_parallel_size": 2}})
    environ = {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}
    found = places(config, None, environ)
    assert [place.devices for place in found] == [("0", "1", "2", "3"), ("4", "5", "6", "7")]


@pytest.mark.parametrize(("size", "workers"), [(4, None), (1, 3), (2, 2)])
def test_too_few_devices_are_an_error_with_their_number(
    nvidia_smi: Any, tmp_path: Path, size: int, workers: int | None
) -> None:
    nvidia_smi()
    with pytest.raises(LaunchError, match="2 are visible: 0, 1"):
        places(gpu_config(tmp_path, size), workers, {})


def test_on_a_cpu_each_worker_gets_cores_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 6, 7})
    config = config_of(tmp_path)
    assert places(config, None, {}) == [Place()]
    assert [place.cpus for place in places(config, 3, {})] == [(0, 1), (2, 3), (6, 7)]
    assert [place.cpus for place in places(config, 7, {})][5:] == [(7,), (0,)]
    second = places(config, 3, {})[1]
    assert second.environment(config, {})["VLLM_CPU_OMP_THREADS_BIND"] == "2,3"
    own = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    assert second.environment(config, own) == own


def test_who_holds_a_device_is_named_with_the_pid(
    nvidia_smi: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(held="GPU-bbbb2222-0000, 4711, python3, 70000 MiB")
    (sentence,) = holders_of_visible_devices()
    assert "GPU 1 is held by process 4711 (python3, 70000 MiB)" in sentence
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert holders_of_visible_devices() == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb2222")
    assert len(holders_of_visible_devices()) == 1


def test_a_driver_that_is_not_well_is_an_error(nvidia_smi: Any) -> None:
    nvidia_smi(exit_code=9)
    with pytest.raises(LaunchError, match="nvidia-smi -L failed"):
        visible_devices({})


def test_too_little_memory_lowers_sequences_first_and_then_the_share_of_the_device() -> None:
    tried: list[dict[str, Any]] = []
    said: list[str] = []

    def start(settings: EngineConfig) -> Engine:
        tried.append(dict(settings.engine_args))
        raise EngineMemoryError("CUDA out of memory")

    with pytest.raises(EngineError, match="out of memory"):
        start_within_memory(start, EngineConfig(engine_args={"max_num_seqs": 128}), said.append)
    assert tried == [
        {"max_num_seqs": 128},
        {"max_num_seqs": 64},
        {"max_num_seqs": 32},
        {"max_num_seqs": 32, "gpu_memory_utilization": 0.8},
        {"max_num_seqs": 32, "gpu_memory_utilization": 0.7},
        {"max_num_seqs": 32, "gpu_memory_utilization": 0.6},
        {"max_num_seqs": 32, "gpu_memory_utilization": 0.5},
    ]
    assert len(said) == len(tried) - 1
    assert "CUDA out of memory; trying again with max_num_seqs 64" in said[0]


def test_where_another_program_holds_the_memory_fewer_sequences_are_not_tried() -> None:
    lower = with_less_memory(EngineConfig(), device_is_shared=True)
    assert lower is not None
    assert dict(lower[0].engine_args) == {"gpu_memory_utilization": 0.8}
