"""A config is strict, and every complaint names the key and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from rel_batch.config import RunConfig, read_config, validate_config
from rel_batch.errors import ConfigError

SHORTEST = "run: night\nmodel: {path: org/name}\n"


def read(tmp_path: Path, text: str, *overrides: str) -> RunConfig:
    file = tmp_path / "run.yaml"
    file.write_text(text, encoding="utf-8")
    return read_config(file, overrides)


def complaint(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, *overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_the_shortest_config_runs_the_bundled_instances_under_format(tmp_path: Path) -> None:
    config = read(tmp_path, SHORTEST)
    assert config.instances.source == "bundled"
    assert [(arm.name, arm.constraint) for arm in config.arms] == [("format", "format")]
    assert config.folder == Path("outputs/night")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run: x\nmodle: {path: a}\n", "unknown key 'modle'; did you mean 'model'?"),
        (
            "run: x\nmodel: {path: a, dtyp: auto}\n",
            "unknown key 'model.dtyp'; did you mean 'dtype'?",
        ),
        (
            "run: x\nmodel: {path: a}\narms: [{name: a, temprature: 1}]",
            "did you mean 'temperature'?",
        ),
        ("run: x\n", "model is missing"),
        ("run: x\nmodel: {path: a, max_model_len: long}", "model.max_model_len"),
        ("run: x\nmodel: {path: a}\nengine: {max_in_flight: '5'}", "not '5'"),
        ("run: x\nmodel: {path: a}\narms: []", "arms: "),
        ("run: ../x\nmodel: {path: a}", "run: "),
        ("run: x\nrun: y\nmodel: {path: a}", ":2: not valid YAML: the key 'run' is given twice"),
        ("run: &a x\nmodel: {path: *a}", "aliases (*name) are not allowed"),
        ("run: [\n", "not valid YAML"),
        ("- 1\n", "a config is a mapping"),
        ("", "a config is a mapping"),
        ("run: x\nmodel: {path: a}\narms: [{name: a}, {name: a}]", "two arms are called 'a'"),
        ("run: x\nmodel: {path: a}\narms: [{name: a, samples: 3}]", "need a temperature above 0"),
        ("run: x\nmodel: {path: a}\narms: [{name: a, temperature: 2.1}]", "arms.0.temperature"),
        ("run: x\nmodel: {path: a}\ninstances: {tasks: [REL-A9]}", "REL-A1"),
        ("run: x\nmodel: {path: a}\nseed: -1", "seed"),
        (
            "run: x\nmodel: {path: a}\narms: [{name: a, json_instruction: true}]",
            "constraint 'format' admits no JSON",
        ),
        (
            "run: x\nmodel: {path: a}\narms: [{name: a, examples_seed: 3}]",
            "examples_seed is set, but examples is 0",
        ),
        ("run: x\nmodel: {path: a}\narms: [{name: a, examples: -1}]", "arms.0.examples"),
        ("run: x\nmodel: {path: a}\nengine: {fake_replies: scripted}", "fake_script"),
    ],
)
def test_a_bad_config_is_one_sentence_that_names_the_key(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert expected in complaint(tmp_path, text)


def test_every_problem_of_a_config_is_told_at_once(tmp_path: Path) -> None:
    told = complaint(tmp_path, "run: x\nmodle: 1\nsede: 3\n")
    assert "modle" in told
    assert "sede" in told
    assert "model is missing" in told


def test_numbers_in_exponent_notation_are_numbers(tmp_path: Path) -> None:
    config = read(tmp_path, SHORTEST + "arms: [{name: a, temperature: 5e-1}]")
    assert config.arms[0].temperature == 0.5


def test_a_deeply_nested_config_is_refused_and_does_not_crash(tmp_path: Path) -> None:
    assert "not valid YAML" in complaint(tmp_path, "[" * 100_000)


def test_a_missing_or_binary_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config"):
        read_config(tmp_path / "absent.yaml")
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_config(file)


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("seed=7", lambda c: c.seed == 7),
        ("model.dtype=float32", lambda c: c.model.dtype == "float32"),
        ("arms.0.max_tokens=64", lambda c: c.arms[0].max_tokens == 64),
        ("arms.0.max_tokens={REL-A1: 4}", lambda c: c.arms[0].max_tokens["REL-A1"] == 4),
        ("instances.tasks=[REL-A1, REL-C3]", lambda c: c.instances.tasks == ("REL-A1", "REL-C3")),
        ("engine.engine_args.block_size=32", lambda c: c.engine.engine_args["block_size"] == 32),
        ("arms.0.system_prompt=Be brief.", lambda c: c.arms[0].system_prompt == "Be brief."),
        ("arms.0.examples=3", lambda c: c.arms[0].examples == 3),
        ("model.revision=", lambda c: c.model.revision is None),
    ],
)
def test_set_overrides_one_value(tmp_path: Path, override: str, value) -> None:
    assert value(read(tmp_path, SHORTEST + "arms: [{name: a}]", override))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed", "expected key=value"),
        ("=3", "expected key=value"),
        ("arms.7.name=x", "not one of the items 0..0"),
        ("model.path.deeper=x", "is a value and has no keys"),
        ("sede=3", "did you mean 'seed'?"),
    ],
)
def test_a_bad_override_is_a_config_error(tmp_path: Path, override: str, expected: str) -> None:
    assert expected in complaint(tmp_path, SHORTEST + "arms: [{name: a}]", override)


def test_the_configs_of_the_repository_are_valid() -> None:
    configs = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))
    assert configs
    for file in configs:
        read_config(file)


def grid(**arms: object) -> dict[str, object]:
    return {"run": "r", "model": {"path": "m"}, "arms": arms}


def test_a_grid_is_every_combination_named_by_what_differs() -> None:
    values = {"constraint": ["none", "format"], "temperature": [0.5, 1], "samples": [4]}
    config = validate_config(grid(grid=values, top_p=0.9), "x.yaml")
    assert [arm.name for arm in config.arms] == ["none-0.5", "none-1", "format-0.5", "format-1"]
    assert {arm.samples for arm in config.arms} == {4}
    assert {arm.top_p for arm in config.arms} == {0.9}
    assert [arm.constraint for arm in config.arms] == ["none", "none", "format", "format"]


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ({"constraint": "none"}, "arms is a list of arms, or a grid"),
        ({"grid": {}}, "arms is a list of arms, or a grid"),
        ({"grid": {"constraint": "none"}}, "arms is a list of arms, or a grid"),
        ({"grid": {"max_tokens": [{"REL-A1": 4}]}}, "arms is a list of arms, or a grid"),
        ({"grid": {"max_tokens": list(range(1, 102))}}, "the grid has 101 arms"),
        ({"grid": {"constrant": ["none"]}}, "did you mean 'constraint'"),
        ({"grid": {"constraint": ["none", "none"]}}, "two arms are called 'none'"),
    ],
)
def test_a_grid_that_means_nothing_is_refused(arms: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        validate_config(grid(**arms), "x.yaml")
