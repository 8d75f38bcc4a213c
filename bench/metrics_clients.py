"""What watching costs a step: trainings with /metrics, 200 slow clients and a row each step, and trainings without, in turn.

    python3 bench/metrics_clients.py build/trimtab CONFIG.json [--rounds 10] [--steps 50] [--clients 200]
        [--batch 4] [--threads 0]

Each round trains three times, in an order that rotates: "watched", "plain" and "plain again", whose difference is the
spread of equal runs. Printed are medians over the rounds of the seconds of a step, by the clock and by the processor time
of the whole process (its start is in both). The clients need a processor too: with --threads one less than there are,
it is theirs, and what the training loses is what its own server takes from it.
"""
import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import tempfile
import threading
import time


class SlowClients(threading.Thread):
    """Half send their request a byte a second, half fetch the answer by single bytes. Each begins again when cut off."""

    def __init__(self, port, count):
        super().__init__(daemon=True)
        self.port, self.count, self.stops, self.answers, self.opened = port, count, False, 0, 0

    def connect(self, kind):
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        line.connect(("127.0.0.1", self.port))
        line.setblocking(False)
        self.opened += 1
        request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        if kind == "reader":
            line.send(request)
            request = b""
        return {"line": line, "kind": kind, "left": request}

    def turn(self, client):
        if client["kind"] == "sender" and client["left"]:
            client["line"].send(client["left"][:1])
            client["left"] = client["left"][1:]
            return
        try:
            got = client["line"].recv(1)
        except BlockingIOError:
            return
        if not got:
            raise ConnectionError
        self.answers += 1

    def run(self):
        clients = [self.connect("sender" if i % 2 else "reader") for i in range(self.count)]
        while not self.stops:
            begin = time.monotonic()
            for i, client in enumerate(clients):
                try:
                    self.turn(client)
                except OSError:
                    client["line"].close()
                    try:
                        clients[i] = self.connect(client["kind"])
                    except OSError:
                        return
            time.sleep(max(0.0, 1.0 - (time.monotonic() - begin)))


def train(options, folder, name, watched):
    output = os.path.join(folder, name)
    words = [options.trimtab, "train", "--model_name_or_path", os.path.join(folder, "model"), "--init", "random",
             "--dataset_name", os.path.join(folder, "train.jsonl"), "--output_dir", output, "--overwrite_output_dir", "true",
             "--max_steps", str(options.steps), "--save_strategy", "no", "--report_to", "none", "--device", "cpu",
             "--use_peft", "true", "--per_device_train_batch_size", str(options.batch)]
    words += ["--threads", str(options.threads)] if options.threads > 0 else []
    words += ["--logging_steps", "1", "--metrics_port", "0"] if watched else ["--logging_steps", str(options.steps)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    clients, tail = None, []
    for line in process.stderr:
        tail = (tail + [line])[-5:]
        port = re.match(r"metrics at http://127\.0\.0\.1:(\d+)/", line)
        if port:
            clients = SlowClients(int(port.group(1)), options.clients)
            clients.start()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0 or (watched and clients is None):
        raise SystemExit("".join(tail))
    if clients is not None:
        clients.stops = True
    with open(os.path.join(output, "metrics.jsonl")) as rows:
        last = [row for row in map(json.loads, rows) if "steps_total_seconds" in row][-1]
    return (last["steps_total_seconds"] / options.steps, (usage.ru_utime + usage.ru_stime) / options.steps,
            clients.opened if clients else 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trimtab")
    parser.add_argument("config")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    kinds = ["watched", "plain", "plain again"]
    seconds = {kind: ([], []) for kind in kinds}
    opened = 0
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "model"))
        with open(options.config) as source, open(os.path.join(folder, "model", "config.json"), "w") as target:
            target.write(source.read())
        with open(os.path.join(folder, "train.jsonl"), "w") as rows:
            for i in range(64):
                ids = [(i * 131 + j * 7) % 900 + 10 for j in range(128)]
                rows.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
        for number in range(options.rounds):
            for kind in kinds[number % 3:] + kinds[:number % 3]:
                wall, processor, connections = train(options, folder, "out", kind == "watched")
                seconds[kind][0].append(wall)
                seconds[kind][1].append(processor)
                opened += connections
    for i, clock in enumerate(["clock", "processor"]):
        medians = {kind: statistics.median(seconds[kind][i]) for kind in kinds}
        plain = medians["plain"]
        print(f"{clock}: plain {plain * 1e3:.2f} ms a step, watched {100 * (medians['watched'] / plain - 1):+.2f} %, "
              f"plain again {100 * (medians['plain again'] / plain - 1):+.2f} %, "
              f"rounds of plain {100 * min(seconds['plain'][i]) / plain - 100:+.1f} to "
              f"{100 * max(seconds['plain'][i]) / plain - 100:+.1f} %")
    print(f"{opened} connections of slow clients in {options.rounds} rounds of {options.steps} steps")


main()
