#!/usr/bin/env python3
"""An HTTP proxy on loopback, for tests: tunnels (CONNECT, RFC 9110, 9.3.6) and requests for whole URLs, of Python's standard
library alone.

    [PROXY_USER=USER:PASSWORD] proxy.py FOLDER

The port is written to FOLDER/port, and each request as a line "METHOD TARGET CODE" to FOLDER/log. Names below .invalid, which
no resolver knows, are this machine. With PROXY_USER it answers 407 to those who do not say it.
"""
import base64
import http.client
import http.server
import os
import pathlib
import select
import socket
import sys
import urllib.parse

from with_parent import end_with_parent

FOLDER = pathlib.Path(sys.argv[1])
USER = os.environ.get("PROXY_USER")
WANTED = "Basic " + base64.b64encode(USER.encode()).decode() if USER else None


def address_of(host):
    return "127.0.0.1" if host.endswith(".invalid") else host


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def note(self, code):
        with open(FOLDER / "log", "a") as log:
            log.write(f"{self.command} {self.path} {code}\n")

    def may_pass(self):
        if WANTED is None or self.headers.get("Proxy-Authorization") == WANTED:
            return True
        self.note(407)
        self.send_response(407)
        self.send_header("Proxy-Authenticate", 'Basic realm="tests"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def do_CONNECT(self):
        if not self.may_pass():
            return
        host, _, port = self.path.rpartition(":")
        try:
            far = socket.create_connection((address_of(host), int(port)))
        except OSError:
            self.note(502)
            return self.send_error(502)
        self.note(200)
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        ends = {self.connection: far, far: self.connection}
        while True:
            for end in select.select(list(ends), [], [])[0]:
                data = end.recv(65536)
                if not data:
                    return far.close()
                ends[end].sendall(data)

    def forward(self):
        if not self.may_pass():
            return
        url = urllib.parse.urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        line = http.client.HTTPConnection(address_of(url.hostname), url.port or 80)
        line.putrequest(self.command, url.path + (f"?{url.query}" if url.query else ""), skip_host=True,
                        skip_accept_encoding=True)
        for name, value in self.headers.items():
            if not name.lower().startswith("proxy-"):
                line.putheader(name, value)
        line.endheaders(body)
        answer = line.getresponse()
        self.note(answer.status)
        data = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward


def main():
    end_with_parent()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    (FOLDER / "port.new").write_text(str(server.server_address[1]))
    (FOLDER / "port.new").rename(FOLDER / "port")
    server.serve_forever()


main()
