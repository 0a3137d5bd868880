"""One real engine over two emulated nodes of a real SLURM, on the CPU: vLLM's own support."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Job, Site

from rel_batch.store import RunFolder

pytestmark = pytest.mark.engine

CONFIG = """
run: nodes
model: {{path: {checkpoint}}}
instances: {{tasks: [REL-C1, REL-C3], limit: 3}}
arms: [{{name: format, constraint: format, max_tokens: 48}}]
engine: {{tensor_parallel_size: 2, cpu_kv_cache_gib: 1}}
slurm: {{nodes_per_task: 2, gpus_per_task: 0, time: 30}}
"""


def test_a_model_over_two_nodes_gives_the_rows_of_the_plan(
    site: Site, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = site.folder / "nodes.yaml"
    file.write_text(CONFIG.format(checkpoint=tiny_llama))
    # Both nodes are this machine: they bind no cores, and meet each other on loopback.
    for name, value in (
        ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
        ("VLLM_HOST_IP", "127.0.0.1"),
        ("GLOO_SOCKET_IFNAME", "lo"),
    ):
        monkeypatch.setitem(site.cluster.environment, name, value)
    said = site.rel_batch("slurm", "submit", file, "--parsable")
    array, report = said.splitlines()[-1].split()
    job = Job(site, site.folder / "outputs" / "nodes", array, report)
    job.wait(within_s=900.0)
    # Both nodes end in good order, and the job that reports begins.
    states = site.cluster.queue(array) | site.cluster.queue(report)
    log = job.log(0)
    assert set(states.values()) == {"COMPLETED"}, (states, log)
    assert "node 1 of 2 follows 127.0.0.1" in log, log
    run = RunFolder.open(job.run)
    rows = {row.request_key: row for row in run.iter_completions()}
    assert set(rows) == {request.key for request in run.iter_requests()}, log
    for row in rows.values():
        assert row.status in ("ok", "truncated"), row.error
        assert row.backend in ("xgrammar", "guidance")
