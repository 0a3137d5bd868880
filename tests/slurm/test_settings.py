"""The section `slurm:`: what may stand in it, and which of three places wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rel_batch.config import RunConfig, read_config, validate_config
from rel_batch.errors import ConfigError
from rel_batch.launch.slurm_submit import home_file, slurm_settings
from rel_batch.slurm_settings import SlurmConfig, parse_duration_s
from rel_batch.strict_yaml import parse_yaml


def config(slurm: dict[str, Any], **engine: Any) -> RunConfig:
    settings = {"run": "night", "model": {"path": "m"}, "slurm": slurm}
    return validate_config(settings | ({"engine": engine} if engine else {}), "night.yaml")


@pytest.mark.parametrize(
    ("text", "seconds", "why"),
    [
        ("90", 5400, "a bare number is minutes"),
        ("1:30", 90, "minutes:seconds"),
        ("4:00:00", 14400, "hours:minutes:seconds"),
        ("1-12", 129600, "days-hours"),
        ("1-12:30", 131400, "days-hours:minutes"),
        ("2-0:0:30", 172830, "days-hours:minutes:seconds"),
        ("4h", None, "no unit"),
        ("", None, "nothing"),
        ("1:2:3:4", None, "too many parts"),
        ("4:00:00\n", 14400, "blanks around it"),
        ("-4", None, "no sign"),
    ],
)
def test_a_time_means_what_sbatch_means_by_it(text: str, seconds: int | None, why: str) -> None:
    assert parse_duration_s(text) == seconds, why


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4:00:00", "4:00:00"),
        ("1:30", "1:30"),
        ("1-12:00:00", "1-12:00:00"),
        ("90", 90),
        ("-5", -5),
        ("0.5", 0.5),
    ],
)
def test_a_time_in_yaml_is_no_number_in_base_60(text: str, value: object) -> None:
    assert parse_yaml(text, "x.yaml") == value


def test_a_number_of_minutes_need_not_be_quoted() -> None:
    assert config({"time": 90}).slurm.time == "90"


@pytest.mark.parametrize(
    ("slurm", "complaint"),
    [
        ({"partitoin": "gpu"}, "did you mean 'partition'"),
        ({"time": "4h"}, "slurm.time"),
        ({"time": "0"}, "slurm.time"),
        ({"tasks": 0}, "slurm.tasks"),
        ({"gpus_per_task": -1}, "slurm.gpus_per_task"),
        ({"sbatch": {"Mail Type": "x"}}, "slurm.sbatch"),
        # What followed a line break in an #SBATCH line would be run by the shell.
        ({"partition": "gpu\nrm -rf x"}, "slurm.partition"),
        ({"sbatch": {"comment": "a\nb"}}, "one line"),
        ({"setup": ["a\nb"]}, "slurm.setup"),
        ({"report": {"tiem": "1"}}, "did you mean 'time'"),
    ],
)
def test_a_mistake_names_its_key(slurm: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        config(slurm)


def test_the_command_line_wins_over_the_config_and_the_config_over_the_home_file(
    tmp_path: Path,
) -> None:
    home = tmp_path / "slurm.yaml"
    home.write_text("account: ours\npartition: slow\ntime: 1:00:00\nsbatch: {mail-type: FAIL}\n")
    found = slurm_settings(
        config({"partition": "gpu", "time": "2:00:00", "sbatch": {"mem": "64G"}}),
        {"time": "3:00:00"},
        home,
    )
    assert (found.account, found.partition, found.time) == ("ours", "gpu", "3:00:00")
    assert dict(found.sbatch) == {"mail-type": "FAIL", "mem": "64G"}


def test_without_a_home_file_there_are_the_defaults(tmp_path: Path) -> None:
    assert slurm_settings(config({}), {}, tmp_path / "none.yaml") == SlurmConfig()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("- gpu\n", "mapping"), ("partitoin: gpu\n", "partition"), ("time: [\n", "not valid YAML")],
)
def test_a_mistake_in_the_home_file_names_the_file(
    tmp_path: Path, text: str, complaint: str
) -> None:
    home = tmp_path / "slurm.yaml"
    home.write_text(text)
    with pytest.raises(ConfigError, match=rf"(?s){home}.*{complaint}"):
        slurm_settings(config({}), {}, home)


@pytest.mark.parametrize(
    ("environ", "file"),
    [
        ({"XDG_CONFIG_HOME": "/etc/xdg"}, Path("/etc/xdg/rel-batch/slurm.yaml")),
        ({}, Path("~/.config/rel-batch/slurm.yaml").expanduser()),
        ({"XDG_CONFIG_HOME": ""}, Path("~/.config/rel-batch/slurm.yaml").expanduser()),
    ],
)
def test_the_home_file_lies_where_such_files_lie(environ: dict[str, str], file: Path) -> None:
    assert home_file(environ) == file


@pytest.mark.parametrize(
    ("gpus", "nodes", "tensor", "pipeline", "fits"),
    [
        (1, 1, 1, 1, True),
        (8, 1, 2, 1, True),
        (8, 1, 2, 4, True),
        (4, 1, 8, 1, False),
        # On the CPU there is nothing to count.
        (0, 1, 1, 1, True),
        (0, 2, 2, 1, True),
        # An engine over several nodes takes all that they have.
        (8, 2, 8, 2, True),
        (8, 2, 4, 1, False),
        (8, 2, 8, 4, False),
    ],
)
def test_a_task_gets_gpus_for_whole_engines(
    tmp_path: Path, gpus: int, nodes: int, tensor: int, pipeline: int, *, fits: bool
) -> None:
    given = {"gpus_per_task": gpus, "nodes_per_task": nodes}
    wanted = config(
        {},
        tensor_parallel_size=tensor,
        engine_args={"pipeline_parallel_size": pipeline},
    )
    if fits:
        slurm_settings(wanted, given, tmp_path / "none")
    else:
        with pytest.raises(ConfigError, match=f"one engine needs {tensor * pipeline}"):
            slurm_settings(wanted, given, tmp_path / "none")


@pytest.mark.parametrize(
    ("time", "lead_s"),
    [("4:00:00", 300), ("20:00", 300), ("10", 150), ("1", 15), ("0:02", 1)],
)
def test_a_short_limit_leaves_most_of_its_time_for_work(time: str, lead_s: int) -> None:
    assert SlurmConfig(time=time).lead_s == lead_s


def test_the_settings_of_a_cluster_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "night.yaml"
    file.write_text("run: night\nmodel: {path: m}\nslurm: {time: 8:00:00, tasks: 4}\n")
    found = read_config(file, ["slurm.partition=gpu", "slurm.report.time=30"]).slurm
    assert (found.time, found.tasks, found.partition) == ("8:00:00", 4, "gpu")
    assert found.report.time == "30"
