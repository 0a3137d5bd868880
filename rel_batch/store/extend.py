"""Adding arms to a run that exists: new requests after the old ones, and nothing old touched.

    run = append_arms(run, manifest, plan)

The new requests lie in a file of their own (`requests-01.parquet`) and in chunks of their own, with
numbers above all others. As when a run is created, the intent comes first (`.manifest.json.adding`,
taken atomically), then the data, then the intent takes the place of `manifest.json`; so one that is
interrupted is finished by the same command, and of two at once with different arms one is refused.
Workers that are at work meanwhile do not see the new arms; those that come later do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rel_batch.errors import StoreError
from rel_batch.records import PlannedRequest
from rel_batch.store.disk import NameTakenError, disk_errors, sync_folder, writing
from rel_batch.store.manifest import MANIFEST, STORE_VERSION, check_identity, read_manifest
from rel_batch.store.parquet import write_rows
from rel_batch.store.run_folder import REQUESTS_FILE, RunFolder
from rel_batch.store.schemas import REQUESTS

_INTENT = ".manifest.json.adding"


def new_arms(run: RunFolder, manifest: Mapping[str, Any]) -> list[str]:
    """The names of the arms that `manifest` has and the run has not.

    Raises StoreError, with the differences in two columns, where anything else differs.
    """
    stored, asked = run.manifest["identity"], manifest["identity"]
    old = {arm["name"]: arm for arm in stored["arms"]}
    asked_arms = {arm["name"]: arm for arm in asked["arms"]}
    check_identity(
        run.path / MANIFEST,
        {"identity": {**stored, "arms": old}},
        {"identity": {**asked, "arms": {n: a for n, a in asked_arms.items() if n in old}}},
    )
    return [name for name in asked_arms if name not in old]


def append_arms(
    run: RunFolder,
    manifest: Mapping[str, Any],
    plan: Callable[[list[str]], tuple[Iterable[PlannedRequest], int, int]],
) -> RunFolder:
    """Add the arms of `manifest` that the run has not, and give the run with them.

    `plan` gives the requests of the arms that it is told the names of, their number, and the
    context that they need. Raises StoreError.
    """
    names = new_arms(run, manifest)
    if not names:
        return RunFolder.open(run.path)
    requests, num_requests, max_model_len = plan(names)
    stored = run.manifest
    files = list(stored.get("request_files", [REQUESTS_FILE]))
    file = f"requests-{len(files):02d}.parquet"
    content = {
        **stored,
        **manifest,
        "store_version": STORE_VERSION,
        "num_requests": stored["num_requests"] + num_requests,
        "max_model_len": max(stored["max_model_len"], max_model_len),
        "request_files": [*files, file],
    }
    _take_intent(run, content)
    first = 1 + max((max(chunks) for (chunks,) in run.read_request_columns("chunk")), default=-1)
    shifted = (dataclasses.replace(request, chunk=first + request.chunk) for request in requests)
    write_rows(run.path / file, REQUESTS, shifted, replace=True)
    with disk_errors("write", run.path / MANIFEST):
        # It is gone where the same command, started twice, was faster; it wrote the same.
        with contextlib.suppress(FileNotFoundError):
            (run.path / _INTENT).replace(run.path / MANIFEST)
        sync_folder(run.path)
    return RunFolder.open(run.path)


def _take_intent(run: RunFolder, content: Mapping[str, Any]) -> None:
    intent = run.path / _INTENT
    try:
        with writing(intent, replace=False) as file:
            file.write(json.dumps(content, indent=2, ensure_ascii=True).encode() + b"\n")
    except NameTakenError:
        with disk_errors("read", intent):
            pending = json.loads(intent.read_bytes()) if intent.exists() else content
        if pending["identity"] != json.loads(json.dumps(content["identity"])):
            raise StoreError(
                f"other arms are being added to {run.path}, or their adding was interrupted",
                hint=f"finish that with its own command, or remove {intent}",
            ) from None
    if read_manifest(run.path) != run.manifest:
        intent.unlink(missing_ok=True)
        raise StoreError(f"{run.path} has changed meanwhile", hint="start the same command again")
