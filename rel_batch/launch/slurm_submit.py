"""From a config to a queue: prepare once, here, then submit the array and its report job.

    settings = slurm_settings(config, given, home_file())
    prepare_run(config, allow_rejected=False)
    submission = submit(config, settings, Slurm.find(), after=None)

Everything that can fail for a reason of ours fails before anything is queued: the model and the
data are fetched, prompts rendered, every constraint compiled, the run folder created. What was
queued is noted in `RUN/slurm/`, scripts included, so that `status` and `cancel` find it.

Surprising: a run may be submitted again while it runs; its tasks are more workers of it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from rel_batch.config import RunConfig, validate_config
from rel_batch.errors import ConfigError, EngineError, LaunchError, RelBatchError, StoreError
from rel_batch.launch.prepare import prepare
from rel_batch.launch.slurm import Slurm, UnsureError
from rel_batch.launch.slurm_script import Placement, render_array, render_report
from rel_batch.slurm_settings import SlurmConfig
from rel_batch.store import RunFolder
from rel_batch.store.disk import disk_errors, file_names, make_folder, writing
from rel_batch.strict_yaml import parse_yaml

_FOLDER = "slurm"


@dataclass(frozen=True, slots=True)
class Submission:
    """An array that was queued for a run.

    Attributes:
        array_job: its id; tasks are 0 ... tasks - 1.
        report_job: the job that reports when it has ended; None where that was refused.
    """

    array_job: str
    tasks: int
    report_job: str | None


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run folder that any worker can join. `num_missing` requests have no row yet."""

    run: RunFolder
    num_requests: int
    num_missing: int


def home_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the settings lie that hold for every run."""
    folder = environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(folder) / "rel-batch" / "slurm.yaml"


def slurm_settings(config: RunConfig, given: Mapping[str, Any], home: Path) -> SlurmConfig:
    """The command line's settings, else the config's, else those of `home`.

    Raises ConfigError.
    """
    layers = [_read_home(home), config.slurm.model_dump(exclude_unset=True), given]
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merged(merged, layer)
    settings = _validated(merged, "the settings of slurm")
    group = config.engine.num_devices
    gpus = settings.gpus_per_task * settings.nodes_per_task
    # An engine over several nodes takes all that a task has.
    fits = gpus == group if settings.nodes_per_task > 1 else gpus % group == 0
    if config.engine.kind == "vllm" and gpus and not fits:
        raise ConfigError(
            f"a task gets {gpus} GPUs (slurm.gpus_per_task on slurm.nodes_per_task nodes), but "
            f"one engine needs {group}",
            hint="change these two, engine.tensor_parallel_size or pipeline_parallel_size",
        )
    return settings


def array_script(config: RunConfig, settings: SlurmConfig, *, after: str | None) -> str:
    """The script of the array. `after` is a job, or a dependency as sbatch takes it."""
    dependency = None if after is None else after if ":" in after else f"afterany:{after}"
    return render_array(settings, _place(config), after=dependency)


def report_script(config: RunConfig, settings: SlurmConfig, array_job: str) -> str:
    """The script of the job that reports when the array has ended."""
    return render_report(settings, _place(config), array_job=array_job)


def prepare_run(config: RunConfig, *, allow_rejected: bool) -> PreparedRun:
    """Fetch, validate, render and compile everything, and create the run folder.

    Raises RelBatchError.
    """
    prepared = prepare(config)
    rejected = prepared.rejected_constraints
    if rejected and not allow_rejected:
        raise EngineError(
            f"{len(rejected)} constraints do not compile with {config.engine.backend}; nothing "
            f"was queued; the first: {next(iter(rejected.values()))}",
            hint="with --allow-rejected these requests get the status constraint_rejected",
        )
    run = RunFolder.create_or_resume(
        config.folder,
        prepared.manifest({}),
        prepared.instances.values(),
        prepared.plan.requests,
    )
    num_requests = len(prepared.plan.requests)
    return PreparedRun(run, num_requests, num_requests - len(run.finished_keys()))


def submit(
    config: RunConfig, settings: SlurmConfig, slurm: Slurm, *, after: str | None
) -> Submission:
    """Queue the array of a run that is prepared, and its report job.

    Raises LaunchError, which says what is queued and what is not, and StoreError.
    """
    folder = config.folder.absolute()
    make_folder(folder / "logs")
    make_folder(folder / _FOLDER)
    script = array_script(config, settings, after=after)
    try:
        array_job = slurm.submit(script)
    except UnsureError:
        raise
    except LaunchError as error:
        raise LaunchError(
            f"{error.message}; nothing is queued",
            hint="the run is prepared: correct the settings and give the same command again "
            "(--print shows the script)",
        ) from error
    report_file = folder / _FOLDER / f"report-{array_job}.sbatch"
    try:
        # Noted at once: whatever happens from here on, `cancel` has to find the array.
        _publish(folder, Submission(array_job, settings.tasks, None))
        _write(folder / _FOLDER / f"array-{array_job}.sbatch", script)
        report = report_script(config, settings, array_job)
        _write(report_file, report)
        submission = Submission(array_job, settings.tasks, slurm.submit(report))
        _publish(folder, submission)
    except RelBatchError as error:
        raise LaunchError(
            f"the array job {array_job} ({settings.tasks} tasks) is queued and will run, but not "
            f"its report job: {error.message}",
            hint=f"to report when it has ended: sbatch {shlex.quote(str(report_file))}; to stop "
            f"the array: rel-batch slurm cancel {shlex.quote(str(config.folder))}, or "
            f"scancel {array_job}",
        ) from error
    return submission


def read_submissions(folder: Path) -> list[Submission]:
    """What was queued for a run, the oldest first. Raises StoreError."""
    path = folder / _FOLDER
    names = [name for name in file_names(path) if re.fullmatch(r"job-\d+\.json", name)]
    found: list[Submission] = []
    for name in sorted(names, key=lambda name: int(name[4:-5])):
        with disk_errors("read", path / name):
            text = (path / name).read_bytes()
        try:
            found.append(Submission(**json.loads(text)))
        except (ValueError, TypeError) as error:
            raise StoreError(
                f"{path / name} does not describe a submission: {error}",
                hint="rel-batch writes it whole or not at all; remove it if the job is gone.",
            ) from error
    return found


def _publish(folder: Path, submission: Submission) -> None:
    text = json.dumps(asdict(submission)) + "\n"
    _write(folder / _FOLDER / f"job-{submission.array_job}.json", text)


def _write(path: Path, text: str) -> None:
    with writing(path, replace=True) as file:
        file.write(text.encode())


def _place(config: RunConfig) -> Placement:
    return Placement.of_run(config.folder.absolute(), _command())


def _command() -> Sequence[str]:
    """How rel-batch is called on a node: by this very interpreter, whatever PATH is there."""
    return (sys.executable, "-m", "rel_batch")


def _read_home(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    data = parse_yaml(text, str(path))
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a mapping of settings, like partition: gpu")
    return _validated(cast(dict[str, Any], data), str(path)).model_dump(exclude_unset=True)


def _validated(settings: Mapping[str, Any], where: str) -> SlurmConfig:
    # A whole config around it, so that a mistake is explained in the same words as in a config.
    whole = {"run": "any", "model": {"path": "any"}, "slurm": dict(settings)}
    return validate_config(whole, where).slurm


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` on top of `below`, mappings key by key."""
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(cast(Mapping[str, Any], known), cast(Mapping[str, Any], value))
        else:
            merged[key] = value
    return merged
