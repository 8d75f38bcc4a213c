#!/usr/bin/env python3
"""A hub of repositories on loopback, for tests: the parts of the Hugging Face hub's public API that downloads and uploads
use, as https://huggingface.co/docs/hub/api and huggingface_hub speak them.

    fake_hub.py FOLDER [CERTIFICATE]

FOLDER/models/OWNER/NAME and FOLDER/datasets/OWNER/NAME hold the files of repositories; a file .private or .gated beside
them closes one to strangers. Files of at least 1,000 bytes are LFS files: they come from another host (127.0.0.2), which
wants no token. The token that is known is hf_good, and hf_old has expired.

With a file of a key and its certificate it speaks TLS. A request for a whole URL, as to a proxy, is one for its path.
The port is written to FOLDER/port, each request as a line to FOLDER/log. FOLDER/faults has a line "KIND TIMES TEXT" for
each fault: that many requests whose path has the text fail so: cut (half of the body, and the end), 429, 500, 503, later (429
with an hour's pause), wrong (one byte of the body is another), hang (half of the body, and silence), silent (no answer),
pause (the answer comes after two seconds), expired (403 of the other host).
"""
import base64
import hashlib
import http.server
import json
import pathlib
import re
import ssl
import sys
import threading
import time
import urllib.parse

from with_parent import end_with_parent

ROOT = pathlib.Path(sys.argv[1])
LFS_BYTES, PAGE, PART_BYTES = 1000, 2, 200000
used = {}
lock = threading.Lock()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    def __init__(self, kind, name):
        self.kind, self.name = kind, name
        self.folder = ROOT / kind / name
        self.exists = self.folder.is_dir() and re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) is not None
        self.private = (self.folder / ".private").exists()
        self.gated = (self.folder / ".gated").exists()

    def files(self):
        paths = sorted(p for p in self.folder.rglob("*") if p.is_file() and p.name not in (".private", ".gated"))
        return [(str(p.relative_to(self.folder)), p.read_bytes()) for p in paths]

    def commit(self):
        return hashlib.sha1(repr([(path, git_sha1(data)) for path, data in self.files()]).encode()).hexdigest()

    def entry(self, path, data):
        entry = {"type": "file", "oid": git_sha1(data), "size": len(data), "path": path}
        if len(data) >= LFS_BYTES:
            entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 130}
        return entry


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def fault(self):
        faults = ROOT / "faults"
        for line in faults.read_text().splitlines() if faults.exists() else ():
            kind, times, text = line.split(" ", 2)
            with lock:
                if text in self.path and used.get(line, 0) < int(times):
                    used[line] = used.get(line, 0) + 1
                    return kind
        return None

    def answer(self, code, body=b"", headers=(), fault=None):
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "wrong":
            body = body[:-1] + bytes([body[-1] ^ 1])
        if fault in ("cut", "hang"):
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            if fault == "hang":
                time.sleep(300)
            self.close_connection = True
            return
        self.wfile.write(body)

    def fail(self, code, kind, message):
        headers = [("X-Error-Code", kind), ("X-Error-Message", message)] if kind else []
        self.answer(code, json.dumps({"error": message}).encode(), headers)

    def send_json(self, value, headers=()):
        self.answer(200, json.dumps(value).encode(), [("Content-Type", "application/json"), *headers], self.wanted)

    def send_bytes(self, data, headers):
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not found:
            return self.answer(200, data, [("Accept-Ranges", "bytes"), *headers], self.wanted)
        first, last = int(found[1]), min(int(found[2] or len(data) - 1), len(data) - 1)
        if first > last:
            return self.answer(416, b"", [("Content-Range", f"bytes */{len(data)}")])
        self.answer(206, data[first:last + 1], [("Content-Range", f"bytes {first}-{last}/{len(data)}"), *headers],
                    self.wanted)

    def may_see(self, repository):
        token = self.headers.get("Authorization", "")
        if token and token != "Bearer hf_good":
            self.fail(401, None, "Invalid credentials in Authorization header")
        elif not repository.exists or (repository.private and not token):
            self.fail(404 if token else 401, "RepoNotFound", "Repository not found")
        elif repository.gated and not token:
            self.fail(403, "GatedRepo", f"Access to {repository.kind} {repository.name} is restricted")
        else:
            return True
        return False

    def begin(self):
        with lock, open(ROOT / "log", "a") as log:
            log.write(f"{self.command} {self.headers['Host'].split(':')[0]} {self.path} "
                      f"token={self.headers.get('Authorization', '-')} range={self.headers.get('Range', '-')}\n")
        self.wanted = self.fault()
        if self.wanted in ("silent", "pause"):
            time.sleep(300 if self.wanted == "silent" else 2)
        if self.wanted == "later":
            self.answer(429, b"slow down", [("Retry-After", "3600")])
            return False
        if self.wanted in ("429", "500", "503"):
            code, self.wanted = int(self.wanted), None
            self.answer(code, b"slow down", [("Retry-After", "0")] if code == 429 else [])
            return False
        return True

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_POST(self):
        body = self.body()
        if not self.begin():
            return
        if self.wanted == "cut":
            self.close_connection = True
            return
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if path.startswith("/done/"):
            return self.join_parts(path.split("/")[2], json.loads(body))
        if self.headers.get("Authorization") != "Bearer hf_good":
            return self.fail(401, None, "Invalid credentials in Authorization header")
        if path == "/api/validate-yaml":
            return self.send_json({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self.create(json.loads(body))
        for pattern, method in ((r"/api/(models|datasets)/([^/]+/[^/]+)/preupload/(.+)", self.preupload),
                                (r"/(datasets/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch", self.batch),
                                (r"/api/(models|datasets)/([^/]+/[^/]+)/commit/(.+)", self.make_commit),
                                (r"/verify", self.verify)):
            found = re.fullmatch(pattern, path)
            if found:
                return method(body, *found.groups())
        self.fail(404, None, "no such page")

    def create(self, wanted):
        folder = ROOT / (wanted.get("type", "model") + "s") / wanted["organization"] / wanted["name"]
        if folder.exists():
            return self.fail(409, None, "You already created this repo")
        folder.mkdir(parents=True)
        if wanted.get("private"):
            (folder / ".private").touch()
        self.send_json({"url": f"http://{self.headers['Host']}/{wanted['organization']}/{wanted['name']}"})

    def preupload(self, body, kind, name, _):
        repository = Repository(kind, name)
        if not repository.exists:
            return self.fail(404, "RepoNotFound", "Repository not found")
        known = {path: sha256(data) if len(data) >= LFS_BYTES else git_sha1(data) for path, data in repository.files()}
        self.send_json({"files": [{"path": file["path"], "shouldIgnore": False, "oid": known.get(file["path"]),
                                   "uploadMode": "lfs" if file["size"] >= LFS_BYTES else "regular"}
                                  for file in json.loads(body)["files"]]})

    def batch(self, body, *_):
        wanted, objects, port = json.loads(body), [], self.server.server_address[1]
        assert wanted["operation"] == "upload" and wanted["hash_algo"] == "sha256", wanted
        for one in wanted["objects"]:
            done = {"oid": one["oid"], "size": one["size"], "authenticated": True}
            if not (ROOT / "objects" / one["oid"]).exists():
                store = f"http://127.0.0.2:{port}/put/{one['oid']}"
                header, href = {"X-Store": "1"}, f"{store}?Signature=secret"
                if one["size"] > PART_BYTES:
                    header = {"chunk_size": str(PART_BYTES)}
                    for part in range((one["size"] + PART_BYTES - 1) // PART_BYTES):
                        header[str(part + 1)] = f"{store}.{part + 1}?Signature=secret"
                    href = f"http://{self.headers['Host']}/done/{one['oid']}"
                done["actions"] = {"upload": {"href": href, "header": header},
                                   "verify": {"href": f"http://{self.headers['Host']}/verify", "header": {}}}
            objects.append(done)
        self.send_json({"transfer": "multipart", "objects": objects})

    def do_PUT(self):
        body = self.body()
        if not self.begin():
            return
        found = re.fullmatch(r"/put/([0-9a-f.]+)\?Signature=secret", self.path)
        if "Authorization" in self.headers or not found:
            return self.fail(400, None, "only one auth mechanism allowed")
        if self.wanted == "cut":
            self.close_connection = True
            return
        if self.wanted == "expired":
            return self.fail(403, None, "the signature has expired")
        whole = "." not in found[1]
        # The headers of an address belong to its request; huggingface_hub leaves them out.
        obeys = self.headers.get("X-Store") == "1" or not self.headers["User-Agent"].startswith("trimtab")
        if whole and (sha256(body) != found[1] or not obeys):
            return self.fail(400, None, "another content than the name says")
        (ROOT / "objects").mkdir(exist_ok=True)
        (ROOT / "objects" / (found[1] if whole else "part." + found[1])).write_bytes(body)
        self.answer(200, b"", [("ETag", f'"{sha256(body)}"')])

    def join_parts(self, oid, wanted):
        parts = [(ROOT / "objects" / f"part.{oid}.{part['partNumber']}").read_bytes() for part in wanted["parts"]]
        etags = [part["etag"] for part in wanted["parts"]]
        if sha256(b"".join(parts)) != oid or etags != [f'"{sha256(part)}"' for part in parts]:
            return self.fail(400, None, "the parts are not the object")
        (ROOT / "objects" / oid).write_bytes(b"".join(parts))
        self.send_json({})

    def verify(self, body):
        one = json.loads(body)
        if (ROOT / "objects" / one["oid"]).stat().st_size != one["size"]:
            return self.fail(404, None, "no such object")
        self.send_json({})

    def make_commit(self, body, kind, name, _):
        lines = [json.loads(line) for line in body.decode().splitlines()]
        assert lines[0]["key"] == "header" and lines[0]["value"]["summary"], lines[0]
        folder = Repository(kind, name).folder
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                data = base64.b64decode(value["content"])
            else:
                data = (ROOT / "objects" / value["oid"]).read_bytes()
                assert sha256(data) == value["oid"] and len(data) == value["size"]
            (folder / value["path"]).parent.mkdir(parents=True, exist_ok=True)
            (folder / value["path"]).write_bytes(data)
        commit = Repository(kind, name).commit()
        self.send_json({"success": True, "commitOid": commit, "commitUrl": f"http://{self.headers['Host']}/{name}/commit/{commit}"})

    def do_GET(self):
        if not self.begin():
            return
        if self.path == "/api/whoami-v2":
            known = self.headers.get("Authorization") == "Bearer hf_good"
            return self.send_json({"name": "me", "orgs": []}) if known else self.fail(401, None, "Invalid username or password.")
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        for pattern, method in ((r"/cdn/([0-9a-f]{64})", self.cdn), (r"/api/(models|datasets)/([^/]+/[^/]+|[^/]+)", self.info),
                                (r"/api/(models|datasets)/([^/]+/[^/]+)/revision/(.+)", self.info),
                                (r"/api/(models|datasets)/([^/]+/[^/]+)/tree/([^/]+)", self.tree),
                                (r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.resolve)):
            found = re.fullmatch(pattern, path)
            if found:
                return method(query, *found.groups())
        self.fail(404, None, "no such page")

    do_HEAD = do_GET

    def find(self, kind, name, revision):
        repository = Repository(kind, name)
        if not self.may_see(repository):
            return None
        if revision not in ("main", "v1", repository.commit()):
            self.fail(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return repository

    def info(self, _, kind, name, revision="main"):
        repository = self.find(kind, name, revision)
        if repository:
            self.send_json({"id": name, "sha": repository.commit(), "private": repository.private,
                            "siblings": [{"rfilename": path} for path, _ in repository.files()]})

    def tree(self, query, kind, name, revision):
        repository = self.find(kind, name, revision)
        if not repository:
            return
        entries = [repository.entry(path, data) for path, data in repository.files()]
        for folder in sorted({e["path"].rsplit("/", 1)[0] for e in entries if "/" in e["path"]}):
            entries.append({"type": "directory", "oid": "0" * 40, "size": 0, "path": folder})
        first = int(query.get("cursor", 0))
        page, headers = entries[first:first + PAGE], []
        if first + PAGE < len(entries):
            url = f"http://{self.headers['Host']}/api/{kind}/{name}/tree/{revision}?recursive=true&cursor={first + PAGE}"
            headers = [("Link", f'<{url}>; rel="next"')]
        self.send_json(page, headers)

    def resolve(self, _, section, name, revision, path):
        repository = self.find("datasets" if section else "models", name, revision)
        if not repository:
            return
        headers = [("X-Repo-Commit", repository.commit())]
        data = dict(repository.files()).get(path)
        if data is None:
            return self.answer(404, b"Entry not found", [("X-Error-Code", "EntryNotFound"), *headers])
        if len(data) < LFS_BYTES:
            return self.send_bytes(data, [("ETag", f'"{git_sha1(data)}"'), *headers])
        port = self.server.server_address[1]
        self.answer(302, b"", [("Location", f"http://127.0.0.2:{port}/cdn/{sha256(data)}?Signature=secret"), *headers,
                               ("X-Linked-Etag", f'"{sha256(data)}"'), ("X-Linked-Size", str(len(data)))])

    def cdn(self, query, digest):
        if "Authorization" in self.headers or "Signature" not in query:
            return self.fail(400, None, "only one auth mechanism allowed")
        if self.wanted == "expired":
            return self.fail(403, None, "the signature has expired")
        for path in ROOT.rglob("*"):
            if path.is_file() and path.stat().st_size >= LFS_BYTES and sha256(path.read_bytes()) == digest:
                return self.send_bytes(path.read_bytes(), [("ETag", f'"{digest}"')])
        self.fail(404, None, "no such object")


def listen():
    """The hub at 127.0.0.1 and the host of its large files at 127.0.0.2, with one port for both."""
    while True:
        hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        try:
            return hub, http.server.ThreadingHTTPServer(("127.0.0.2", hub.server_address[1]), Handler)
        except OSError:  # another program has the port there
            hub.server_close()


def main():
    end_with_parent()
    hub, store = listen()
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2])
        for server in (hub, store):
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    (ROOT / "port.new").write_text(str(hub.server_address[1]))
    (ROOT / "port.new").rename(ROOT / "port")
    threading.Thread(target=store.serve_forever, daemon=True).start()
    hub.serve_forever()


main()
