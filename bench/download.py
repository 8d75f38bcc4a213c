#!/usr/bin/env python3
"""A download of the hub beside curl: the same files of one server on loopback, by `trimtab download` into an empty cache,
verified, and by curl into a folder, not verified, in turns. Prints a JSON line for each turn and one with the medians.

    bench/download.py TRIMTAB [--bytes N] [--files N] [--turns N] [--rate MB/s]

`--bytes`: of all files together; `--rate`: the most that the server sends a second, as a network would (0: no limit). Both
fetch all files at once. "peak_MiB" is the largest resident size of the process. The server is a process of its own and sends
with sendfile(2). Files are made in TMPDIR and removed.
"""
import argparse
import hashlib
import http.server
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

COMMIT = "1" * 40
PIECE = 1 << 18


class Meter:
    """Lets all threads of the server together send `rate` bytes a second."""

    def __init__(self, rate):
        self.rate, self.next, self.lock = rate, 0.0, threading.Lock()

    def wait(self, count):
        if not self.rate:
            return
        with self.lock:
            now = time.monotonic()
            self.next = max(self.next, now) + count / self.rate
            pause = self.next - now
        time.sleep(pause)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def head(self, code, headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()

    def send_json(self, value):
        body = json.dumps(value).encode()
        self.head(200, {"Content-Length": len(body)})
        self.wfile.write(body)

    def do_GET(self):
        files, path = self.server.files, self.path.partition("?")[0]
        if path == "/api/models/some/model/revision/main":
            return self.send_json({"sha": COMMIT})
        if path == f"/api/models/some/model/tree/{COMMIT}":
            return self.send_json([{"type": "file", "path": name, "size": size, "oid": "2" * 40,
                                    "lfs": {"oid": digest, "size": size}} for name, (size, digest) in files.items()])
        name = path.rpartition("/")[2]
        if name not in files:
            return self.head(404, {"Content-Length": 0})
        size, digest = files[name]
        if "/resolve/" in path:
            return self.head(302, {"Location": f"/cdn/{name}?Signature=x", "Content-Length": 0})
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(asked[1]) if asked else 0
        self.head(206 if asked else 200, {"Content-Length": size - first, "ETag": f'"{digest}"'} |
                  ({"Content-Range": f"bytes {first}-{size - 1}/{size}"} if asked else {}))
        with open(self.server.folder / name, "rb") as file:
            while first < size:
                self.server.meter.wait(min(PIECE, size - first))
                first += os.sendfile(self.connection.fileno(), file.fileno(), first, min(PIECE, size - first))


def serve(folder, files, rate, ready):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.folder, server.files, server.meter = folder, files, Meter(rate)
    ready.send(server.server_address[1])
    server.serve_forever()


def make_files(folder, count, size):
    files = {}
    for i in range(count):
        digest, left = hashlib.sha256(), size // count
        with open(folder / f"model-{i}.safetensors", "wb") as file:
            while left > 0:
                piece = os.urandom(min(left, 1 << 24))
                digest.update(piece)
                file.write(piece)
                left -= len(piece)
        files[f"model-{i}.safetensors"] = (size // count, digest.hexdigest())
    return files


def watch(process, peak):
    """The largest resident size in MiB, looked up every 20 ms until the process ends. wait4 has that of this one, too."""
    while True:
        try:
            status = pathlib.Path(f"/proc/{process}/status").read_text()
            peak[0] = max(peak[0], int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1024)
        except (OSError, TypeError):
            return
        time.sleep(0.02)


def timed(words, variables):
    start = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | variables)
    watcher = threading.Thread(target=watch, args=(process.pid, peak := [0.0]))
    watcher.start()
    errors = process.stderr.read()
    _, code, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    watcher.join()
    if code != 0:
        sys.exit(errors.decode())
    return seconds, peak[0], used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trimtab")
    parser.add_argument("--bytes", type=float, default=2e9)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0)
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp())
    server = None
    try:
        (work / "files").mkdir()
        files = make_files(work / "files", options.files, int(options.bytes))
        receiver, sender = multiprocessing.Pipe(False)
        server = multiprocessing.Process(target=serve, args=(work / "files", files, options.rate * 1e6, sender), daemon=True)
        server.start()
        address = f"http://127.0.0.1:{receiver.recv()}"
        variables = {"HF_ENDPOINT": address, "HF_HOME": str(work / "home"), "HF_HUB_OFFLINE": "0", "HF_TOKEN": ""}
        curl = ["curl", "-sSfL", "--no-progress-meter", "--parallel", "--parallel-immediate", "--parallel-max", str(len(files))]
        for name in files:
            curl += ["-o", str(work / "curl" / name), f"{address}/some/model/resolve/{COMMIT}/{name}"]
        all_bytes = sum(size for size, _ in files.values())
        programs = {"curl": curl, "trimtab": [options.trimtab, "download", "some/model"]}
        rates, peaks = {name: [] for name in programs}, {name: 0 for name in programs}
        for _ in range(options.turns):
            row = {}
            for name, words in programs.items():
                for folder in ("curl", "home"):
                    shutil.rmtree(work / folder, ignore_errors=True)
                (work / "curl").mkdir()
                seconds, peak, used = timed(words, variables)
                rates[name].append(all_bytes / seconds / 1e6)
                peaks[name] = max(peaks[name], peak)
                row |= {f"{name}_MB_per_second": round(rates[name][-1], 1), f"{name}_processor_seconds": round(used, 2)}
            print(json.dumps(row), flush=True)
        medians = {name: statistics.median(values) for name, values in rates.items()}
        print(json.dumps({"bytes": all_bytes, "files": len(files), "rate_MB_per_second": options.rate,
                          "curl_MB_per_second": round(medians["curl"], 1), "trimtab_MB_per_second": round(medians["trimtab"], 1),
                          "ratio": round(medians["trimtab"] / medians["curl"], 3),
                          "ratio_of_turns": round(statistics.median(a / b for a, b in zip(rates["trimtab"], rates["curl"])), 3),
                          "curl_peak_MiB": round(peaks["curl"], 1), "trimtab_peak_MiB": round(peaks["trimtab"], 1)}))
    finally:
        if server is not None:
            server.terminate()
        shutil.rmtree(work)


main()
