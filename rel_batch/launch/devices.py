"""Which devices each worker of this machine gets, and who else holds them.

    places(config, 4, os.environ)    # one Place for each worker: its GPUs, or its cores

A worker sees its own group of `engine.num_devices` devices and no other, by CUDA_VISIBLE_DEVICES;
a mask that is set already is what there is to share out. Surprising: a device's name may be a
number, a GPU's UUID or that of a slice of one (MIG); names are passed on as they are.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rel_batch.config import RunConfig
from rel_batch.errors import LaunchError

MASK = "CUDA_VISIBLE_DEVICES"
_CPU_BINDING = "VLLM_CPU_OMP_THREADS_BIND"
_ANSWERS_WITHIN_S = 30.0
_GPU_LINE = re.compile(r"GPU (\d+): .*\(UUID: (GPU-[^)]+)\)")
_SLICE_LINE = re.compile(r"\s+MIG .*\(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker runs.

    Attributes:
        devices: its GPUs, as a mask has them; () on a CPU.
        cpus: its cores; () where it may use all that this process has.
    """

    devices: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()

    def environment(self, config: RunConfig, environ: Mapping[str, str]) -> dict[str, str]:
        """`environ` as a worker in this place gets it."""
        changed = dict(environ)
        if self.devices:
            changed[MASK] = ",".join(self.devices)
        if self.cpus and _CPU_BINDING not in environ:
            # One list of cores for each of vLLM's processes.
            ranks = config.engine.num_devices
            lists = [self.cpus[rank::ranks] or self.cpus for rank in range(ranks)]
            changed[_CPU_BINDING] = "|".join(",".join(map(str, cpus)) for cpus in lists)
        return changed


def places(config: RunConfig, workers: int | None, environ: Mapping[str, str]) -> list[Place]:
    """A place for each of `workers` workers; None for as many as there are GPU groups, or 1.

    Raises LaunchError where there are too few devices.
    """
    devices = visible_devices(environ) if uses_gpus(config) else []
    if not devices:
        if workers is None or workers == 1:
            return [Place()]
        cpus = sorted(os.sched_getaffinity(0))
        share = max(1, len(cpus) // workers)
        return [Place(cpus=_share(cpus, number * share, share)) for number in range(workers)]
    size = config.engine.num_devices
    groups = [tuple(devices[i : i + size]) for i in range(0, len(devices) - size + 1, size)]
    wanted = max(1, len(groups)) if workers is None else workers
    if wanted > len(groups):
        raise LaunchError(
            f"{wanted} workers of {size} devices each (what one engine takes) need "
            f"{wanted * size} devices; {len(devices)} are visible: {', '.join(devices)}",
            hint="ask for fewer workers, or --workers auto",
        )
    return [Place(devices=group) for group in groups[:wanted]]


def visible_devices(environ: Mapping[str, str]) -> list[str]:
    """The devices of the mask, or all of the machine's. Raises LaunchError."""
    mask = environ.get(MASK)
    if mask is not None:
        names = [name.strip() for name in mask.split(",")]
        # CUDA stops at the first name that is none.
        end = next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))
        return names[:end]
    by_gpu: dict[str, list[str]] = {}
    gpu = ""
    for line in _nvidia_smi("-L"):
        if found := _GPU_LINE.match(line):
            gpu = found[1]
            by_gpu[gpu] = []
        elif found := _SLICE_LINE.match(line):
            by_gpu[gpu].append(found[1])
    # Of a GPU that is cut into slices nothing but the slices can be used.
    return [name for gpu, slices in by_gpu.items() for name in slices or [gpu]]


def holders_of_visible_devices() -> list[str]:
    """A sentence for each process that holds memory of a device that this process sees.

    Raises LaunchError.
    """
    names: dict[str, str] = {}
    for line in _nvidia_smi("--query-gpu=index,uuid", "--format=csv,noheader"):
        index, _, uuid = line.partition(", ")
        names[uuid.strip()] = index.strip()
    visible = visible_devices(os.environ)
    sentences: list[str] = []
    query = "--query-compute-apps=gpu_uuid,pid,process_name,used_memory"
    for line in _nvidia_smi(query, "--format=csv,noheader"):
        fields = [field.strip() for field in line.split(", ")]
        if len(fields) != 4:
            continue
        uuid, pid, name, memory = fields
        index = names.get(uuid, "")
        if index in visible or any(_names(device, uuid) for device in visible):
            sentences.append(
                f"GPU {index or uuid} is held by process {pid} ({name}, {memory}): there may be "
                "too little memory left"
            )
    return sentences


def _names(device: str, uuid: str) -> bool:
    """Whether a device's name in a mask is this UUID, or an unambiguous beginning of it."""
    return device.startswith("GPU-") and uuid.startswith(device)


def uses_gpus(config: RunConfig) -> bool:
    """Whether the run's engine, as it is installed here, computes on GPUs."""
    if config.engine.kind != "vllm":
        return False
    try:
        importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        return True
    return False


def _share(cpus: list[int], start: int, share: int) -> tuple[int, ...]:
    """A worker's cores; where there are fewer cores than workers, some share one."""
    return tuple(cpus[(start + i) % len(cpus)] for i in range(share))


def _nvidia_smi(*arguments: str) -> Iterator[str]:
    if not shutil.which("nvidia-smi"):
        return
    command = ["nvidia-smi", *arguments]
    try:
        done = subprocess.run(  # noqa: S603  (a fixed command)
            command, capture_output=True, text=True, timeout=_ANSWERS_WITHIN_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LaunchError(
            f"{' '.join(command)} failed: {error}", hint="see whether the GPU's driver is well"
        ) from error
    yield from done.stdout.splitlines()
