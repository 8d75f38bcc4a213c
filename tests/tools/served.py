"""A server under test and what its clients share. The arguments of the program: TRIMTAB MODEL ADAPTER."""
import atexit
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import time

trimtab, model, adapter = sys.argv[1:4]
failures = []
JSON = {"Content-Type": "application/json"}


def check(holds, *what):
    if not holds:
        failures.append(" ".join(str(word) for word in what))
        print("FAILED:", *what)


class Server:
    def __init__(self, *flags, log="serve.log", served=("--model_name_or_path", model, "--adapter_name_or_path", adapter)):
        self.log = open(log, "w+")
        self.process = subprocess.Popen([trimtab, "serve", *served, "--port", "0", *flags], stderr=self.log)
        atexit.register(self.process.kill)  # a test that ends by an error leaves no server
        for _ in range(1200):
            found = re.search(r"http://127.0.0.1:(\d+)/v1", open(log).read())
            if found or self.process.poll() is not None:
                break
            time.sleep(0.05)
        if not found:
            sys.exit("the server does not start: " + open(log).read())
        self.port = int(found[1])

    def ask(self, path, body=None, method=None, headers=JSON, timeout=200):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if isinstance(body, dict):
            body = json.dumps(body)
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def begin(self, path, body):
        """A request whose answer is not read yet."""
        line = self.connect()
        text = json.dumps(body).encode()
        line.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                     % (path.encode(), len(text), text))
        return line

    def memory(self):
        return int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{self.process.pid}/status").read())[1]) << 10

    def stop(self):
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        check(code == 0, "exit code", code, "after SIGTERM:", open(self.log.name).read())
        return time.monotonic() - began


def chat(content="abc", **more):
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 12, **more}


CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def content_of(answer):
    choice = json.loads(answer[1])["choices"][0]
    return (choice["message"]["content"] if "message" in choice else choice["text"]), choice["finish_reason"]


def events_of(text):
    lines = [line for line in text.decode().split("\n\n") if line]
    check(lines and lines[-1] == "data: [DONE]", "the stream has no end:", text[-100:])
    return [json.loads(line[6:]) for line in lines[:-1]]


def joined(events):
    parts = [event["choices"][0] for event in events if event["choices"]]
    return ("".join(part["delta"].get("content", "") if "delta" in part else part["text"] for part in parts),
            parts[-1]["finish_reason"])
