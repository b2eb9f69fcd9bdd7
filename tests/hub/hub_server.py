#!/usr/bin/env python3
"""A Hugging Face hub of one's own: its API, files, redirects, tokens and everything that goes wrong with them.

    with HubServer(repos={"org/model": {"config.json": b"{}", "model.safetensors": Large(b"...")}}) as hub:
        subprocess.run([...], env={"HF_ENDPOINT": hub.url, ...})
        hub.requests        # what was asked: Request(host, path, headers)

    python3 tests/hub/hub_server.py --root FOLDER --port N      serves FOLDER/ORG/REPO/files until it is ended

Files of weights lie on a second server with another port, as they lie with another host on the real hub.
"""

import argparse
import collections
import dataclasses
import hashlib
import http.server
import json
import pathlib
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse

FAR = 240  # seconds: whoever waits for longer waits in vain
LARGE_ENDINGS = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".parquet")
Request = collections.namedtuple("Request", "host path headers status")


class Large(bytes):
    """A file that Git keeps in its large file store: it has a SHA-256, and lies on the other host."""


@dataclasses.dataclass
class Faults:
    """What goes wrong, of a repository. Counters go down by one each time."""
    token: str = ""                 # wanted of whoever asks
    gated: bool = False             # 403 for any token
    gated_files: int = 0            # this status for files alone
    statuses: list = dataclasses.field(default_factory=list)       # answered first, one each, on the file host
    api_statuses: list = dataclasses.field(default_factory=list)   # the same of the API
    retry_after: int = 0            # with these
    cuts: list = dataclasses.field(default_factory=list)           # answers that end after so many bytes
    ignore_range: bool = False      # the whole file whatever was asked for
    wrong_bytes: int = 0            # answers with other bytes
    wrong_size: int = 0             # added to each size of the listing
    listing: object = None          # instead of the listing
    longer: int = 0                 # bytes too many
    other_commit: bool = False      # X-Repo-Commit of another
    redirects: str = ""             # where files lie instead
    slow: float = 0                 # seconds between pieces of 64 KiB
    goes_on: threading.Event | None = None  # files stop behind their first piece until it is set


def git_digest(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def is_large(name, data):
    return isinstance(data, Large) or name.endswith(LARGE_ENDINGS)


def etag_of(name, data):
    return hashlib.sha256(data).hexdigest() if is_large(name, data) else git_digest(data)


class Repo:
    """`files`: name -> bytes. Its branches: main, and those of `revisions`, each with files of its own."""
    def __init__(self, files, revisions=None, faults=None):
        self.revisions = {"main": dict(files), **{name: dict(own) for name, own in (revisions or {}).items()}}
        self.faults = faults or Faults()

    def commit(self, revision):
        listing = sorted((name, etag_of(name, data)) for name, data in self.revisions[revision].items())
        return hashlib.sha1(repr(listing).encode()).hexdigest()

    def find(self, revision):
        """(commit, files) of a branch or a commit; None."""
        for name, files in self.revisions.items():
            if revision in (name, self.commit(name)):
                return self.commit(name), files
        return None


class HubServer:
    """`repos` and `datasets`: "org/repo" -> Repo, or the files of one."""
    def __init__(self, repos=None, datasets=None, port=0):
        self.repos = {("models", name): self.as_repo(repo) for name, repo in (repos or {}).items()}
        self.repos |= {("datasets", name): self.as_repo(repo) for name, repo in (datasets or {}).items()}
        self.requests = []
        self.lock = threading.Lock()
        self.main = self.make_server(port, Handler)
        self.files = self.make_server(0, FileHandler)
        self.url = f"http://127.0.0.1:{self.main.server_address[1]}"
        # Another name for the same machine: another host for who looks at names.
        self.files_url = f"http://localhost:{self.files.server_address[1]}"
        self.threads = []

    @staticmethod
    def as_repo(repo):
        return repo if isinstance(repo, Repo) else Repo(repo)

    def make_server(self, port, handler):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
        server.daemon_threads = True
        server.hub = self
        return server

    def repo(self, name, kind="models"):
        return self.repos[kind, name]

    def asked(self, host=None, containing=""):
        return [r for r in self.requests if (host is None or r.host == host) and containing in r.path]

    def __enter__(self):
        for server in (self.main, self.files):
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
            thread.start()
            self.threads.append(thread)
        return self

    def __exit__(self, *_):
        for server in (self.main, self.files):
            server.shutdown()
            server.server_close()
        for thread in self.threads:
            thread.join()


class Base(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    host_kind = "hub"

    def log_message(self, *_):
        pass

    @property
    def hub(self):
        return self.server.hub

    def note(self, status):
        with self.hub.lock:
            self.hub.requests.append(Request(self.host_kind, self.path, dict(self.headers), status))

    def answer(self, status, body=b"", **headers):
        self.note(status)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def cut(self):
        """Ends the connection in the middle, as a cable that is pulled."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def send_file(self, name, data, faults, headers):
        with self.hub.lock:
            cut = faults.cuts.pop(0) if faults.cuts and self.command == "GET" else None
            wrong = faults.wrong_bytes > 0 and self.command == "GET"
            faults.wrong_bytes -= wrong
        if wrong:
            data = bytes(byte ^ 1 for byte in data)
        data = bytes(data) + b"x" * faults.longer
        start = 0
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted and not faults.ignore_range:
            start = int(wanted[1])
            if start >= len(data):
                return self.answer(416, Content_Range=f"bytes */{len(data)}", **headers)
            headers["Content_Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        status = 206 if "Content_Range" in headers else 200
        body = data[start:]
        self.note(status)
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return None
        if cut is not None:
            self.wfile.write(body[:cut])
            return self.cut()
        try:
            for at in range(0, len(body), 1 << 16):
                self.wfile.write(body[at:at + (1 << 16)])
                if faults.goes_on:
                    self.wfile.flush()
                    faults.goes_on.wait(FAR)
                if faults.slow:
                    time.sleep(faults.slow)
        except OSError:  # who asked has gone
            self.close_connection = True
        return None


class Handler(Base):
    """The hub itself."""
    def do_GET(self):
        path = urllib.parse.urlsplit(self.path).path
        api = re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/revision/([^/]+))?", path)
        if api:
            return self.listing(api[1], api[2], urllib.parse.unquote(api[3] or "main"))
        file = re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if file:
            kind = "datasets" if file[1] else "models"
            return self.file(kind, file[2], urllib.parse.unquote(file[3]), urllib.parse.unquote(file[4]))
        return self.answer(404)

    def refused(self, repo):
        """Whether it was answered that there is nothing for whoever asks."""
        if repo is None:
            self.answer(401, b'{"error":"Invalid username or password."}', X_Error_Code="RepoNotFound")
            return True
        faults = repo.faults
        if faults.token and self.headers.get("Authorization") != f"Bearer {faults.token}":
            self.answer(401, X_Error_Code="RepoNotFound")
            return True
        if faults.gated:
            self.answer(403, X_Error_Code="GatedRepo")
            return True
        return False

    def failed(self, faults, statuses):
        with self.hub.lock:
            status = statuses.pop(0) if statuses else None
        if status:
            self.answer(status, **({"Retry_After": faults.retry_after} if faults.retry_after else {}))
        return status is not None

    def listing(self, kind, name, revision):
        repo = self.hub.repos.get((kind, name))
        if self.refused(repo) or self.failed(repo.faults, repo.faults.api_statuses):
            return None
        found = repo.find(revision)
        if found is None:
            return self.answer(404, X_Error_Code="RevisionNotFound")
        commit, files = found
        siblings = []
        for file, data in files.items():
            entry = {"rfilename": file, "size": len(data) + repo.faults.wrong_size, "blobId": git_digest(data)}
            if is_large(file, data):
                entry["lfs"] = {"sha256": etag_of(file, data), "size": entry["size"], "pointerSize": 134}
            siblings.append(entry)
        listing = {"id": name, "modelId": name, "sha": commit, "private": False, "gated": False, "tags": [],
                   "downloads": 0, "likes": 0, "siblings": siblings}
        if repo.faults.listing is not None:
            listing = repo.faults.listing
        body = listing if isinstance(listing, bytes) else json.dumps(listing).encode()
        return self.answer(200, body, Content_Type="application/json", X_Repo_Commit=commit)

    def file(self, kind, name, revision, file):
        repo = self.hub.repos.get((kind, name))
        if self.refused(repo):
            return None
        found = repo.find(revision)
        if found is None:
            return self.answer(404, X_Error_Code="RevisionNotFound")
        commit, files = found
        if repo.faults.gated_files:
            return self.answer(repo.faults.gated_files, X_Error_Code="GatedRepo")
        if file not in files:
            return self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        data, faults = files[file], repo.faults
        headers = {"X_Repo_Commit": "0" * 40 if faults.other_commit else commit,
                   "ETag": f'"{etag_of(file, data)}"'}
        if not is_large(file, data):
            if self.failed(faults, faults.statuses):
                return None
            return self.send_file(file, data, faults, headers)
        headers |= {"X_Linked_Etag": f'"{etag_of(file, data)}"', "X_Linked_Size": len(data)}
        place = f"{self.hub.files_url}/{kind}/{name}/{commit}/{urllib.parse.quote(file)}"
        return self.answer(302, b"Found", Location=faults.redirects or place, **headers)


class FileHandler(Base):
    """Where large files lie."""
    host_kind = "files"

    def do_GET(self):
        match = re.fullmatch(r"/(models|datasets)/([^/]+/[^/]+)/([0-9a-f]+)/(.+)", self.path)
        repo = match and self.hub.repos.get((match[1], match[2]))
        found = repo and repo.find(match[3])
        file = urllib.parse.unquote(match[4]) if found else ""
        if not found or file not in found[1]:
            return self.answer(404)
        if Handler.failed(self, repo.faults, repo.faults.statuses):
            return None
        data = found[1][file]
        return self.send_file(file, data, repo.faults, {"ETag": f'"{etag_of(file, data)}"'})


def read_repos(root):
    repos = {}
    for folder in sorted(pathlib.Path(root).glob("*/*")):
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        repos["/".join(folder.parts[-2:])] = files
    return repos


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", required=True, help="a folder with ORG/REPO/files")
    parser.add_argument("--port", type=int, default=0)
    flags = parser.parse_args()
    repos = read_repos(flags.root)
    with HubServer(repos=repos, datasets=repos, port=flags.port) as hub:
        print(f"HF_ENDPOINT={hub.url}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
