"""One real engine over two emulated nodes of a real SLURM, on the CPU: vLLM's own support."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Job, Site

from rel_batch.store import RunFolder

pytestmark = pytest.mark.engine


def test_a_model_over_two_nodes_gives_the_rows_of_the_plan(
    site: Site, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = site.folder / "nodes.yaml"
    file.write_text(
        f"run: nodes\nmodel: {{path: {tiny_llama}}}\ninstances: {{tasks: [REL-C1], limit: 4}}\n"
        "arms: [{name: format, constraint: format}]\n"
        "engine: {tensor_parallel_size: 2, cpu_kv_cache_gib: 1}\n"
        "slurm: {nodes_per_task: 2, gpus_per_task: 0, time: 10}\n"
    )
    # The nodes are one machine: it binds no cores, and meets itself on loopback.
    here = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_HOST_IP": "127.0.0.1"}
    for name, value in (here | {"GLOO_SOCKET_IFNAME": "lo"}).items():
        monkeypatch.setitem(site.cluster.environment, name, value)
    said = site.rel_batch("slurm", "submit", file, "--parsable")
    array, report = said.splitlines()[-1].split()
    site.cluster.command("scancel", report)
    job = Job(site, site.folder / "outputs" / "nodes", array, report)
    job.wait()
    run = RunFolder.open(job.run)
    log = job.log(0)
    assert "node 1 of 2 follows 127.0.0.1" in log, log
    rows = list(run.iter_completions())
    assert {row.request_key for row in rows} == {request.key for request in run.iter_requests()}
    assert all(row.constraint_held for row in rows), [row.error for row in rows]
