"""A Hub on the loopback that publishes a set in the released layout; and a cache as it leaves one.

python published_hub.py    prints its port and serves until it is killed
"""

from __future__ import annotations

import hashlib
import http.server
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from rel_batch.instances.hub import BIOLOGY_TOTAL, COUNTS, FILES, REPO

COMMIT = "c0ffee" * 6 + "cafe"


def released_files() -> dict[str, bytes]:
    """Every file with as many lines as it has records; none can be read, and all files differ."""
    counts = {name: counts[0] for name, counts in COUNTS.items()}
    biology = [name for name in FILES if name not in counts]
    counts |= {name: BIOLOGY_TOTAL // len(biology) for name in biology}
    counts[biology[-1]] += BIOLOGY_TOTAL % len(biology)
    return {name: b"{}\n" * (counts[name] - 1) + name.encode() for name in FILES}


def write_cache(home: Path, files: Mapping[str, bytes], commit: str = COMMIT) -> Path:
    """What huggingface_hub keeps of a dataset below HF_HOME; gives the snapshot's folder."""
    repo = home / "hub" / f"datasets--{REPO.replace('/', '--')}"
    snapshot = repo / "snapshots" / commit
    for name, content in files.items():
        blob = repo / "blobs" / hashlib.sha1(content).hexdigest()
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
        (snapshot / name).symlink_to(blob)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    return snapshot


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files = released_files()

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        status, body, headers = self._found(self.path.partition("?")[0])
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _found(self, path: str) -> tuple[int, bytes, dict[str, str]]:
        revision = path.removeprefix(f"/api/datasets/{REPO}/revision/")
        if revision in ("main", COMMIT):
            siblings = [{"rfilename": name} for name in self.files]
            info = {"id": REPO, "sha": COMMIT, "siblings": siblings}
            return 200, json.dumps(info).encode(), {"Content-Type": "application/json"}
        if revision != path:
            return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}
        if path.startswith(f"/api/datasets/{REPO}/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(content), "oid": _hash(content)}
                for name, content in self.files.items()
            ]
            return 200, json.dumps(tree).encode(), {"Content-Type": "application/json"}
        name = path.removeprefix(f"/datasets/{REPO}/resolve/{COMMIT}/")
        if name in self.files:
            content = self.files[name]
            return 200, content, {"X-Repo-Commit": COMMIT, "ETag": f'"{_hash(content)}"'}
        return 404, b"{}", {}

    def log_message(self, format: str, *args: object) -> None:  # noqa: ARG002
        if self.command == "GET" and "/resolve/" in self.path:
            print(self.path, file=sys.stderr, flush=True)


def _hash(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


if __name__ == "__main__":
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
