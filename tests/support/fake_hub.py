"""A hub on a local port that answers the calls huggingface_hub makes for a download."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Repos = dict[str, dict[str, bytes]]


@contextmanager
def serve_hub(repos: Repos) -> Generator[str]:
    """Serve `repos` (repository to file name to content); gives the base URL."""

    class Handler(_Handler):
        content = repos

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    content: Repos = {}  # noqa: RUF012  # replaced for each server

    def do_GET(self) -> None:  # the base class's name
        path = self.path.split("?")[0].strip("/")
        if path.startswith("api/models/"):
            self._send_info("/".join(path.split("/")[2:4]))
        else:
            self._send_file(path)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _send_info(self, repo: str) -> None:
        if repo not in self.content:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            return
        siblings = [_sibling(name, data) for name, data in self.content[repo].items()]
        info = {"id": repo, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False}
        self._send(200, json.dumps(info).encode(), {"Content-Type": "application/json"})

    def _send_file(self, path: str) -> None:
        owner, repo, _, _, name = path.split("/", 4)
        data = self.content[f"{owner}/{repo}"][name]
        etag = _sibling(name, data)["blobId"]
        self._send(200, data, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _sibling(name: str, data: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": blob}
    if name.endswith((".gguf", ".safetensors")):
        sha256 = hashlib.sha256(data).hexdigest()
        entry["lfs"] = {"size": len(data), "sha256": sha256, "pointerSize": 100}
    return entry
