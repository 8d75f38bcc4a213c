#!/usr/bin/env python3
"""A small S3 server on loopback, of Python's standard library alone, that speaks what AWS' API reference documents.

    s3_server.py FOLDER    writes its port to FOLDER/port when it listens; FOLDER/log has one line a request

Objects are in memory. Signatures (version 4) and the sums of bodies are checked. Keys: AKIDTEST / secretTESTkey; those
of STS and of the container end with the time that the controls say. GET /-/... are controls of tests:

    /-/fault?match=REGEX&do=KIND&times=N   the next N requests whose "METHOD /path?query" matches fail so:
        503, 429        an error that a retry cures
        cut             the connection ends in the middle of the answer
        lost            the request is done, and the connection ends without an answer
        expired         ExpiredToken
        denied          AccessDenied
        wrong           the body that arrives is another one
    /-/fault?clear=1           no more of them
    /-/skew?seconds=N          the server's clock is so far ahead
    /-/conditions?on=0         conditions of PUT are ignored
    /-/age?path=/B/K&seconds=N the object was last changed so much earlier
    /-/damage?path=/B/K        one bit of the object changes
    /-/dump?folder=PATH        writes all objects there
    /-/page?keys=N             most keys of one page of a list
    /-/role?expires=SECONDS    life of the keys that STS, the container and the instance give
    /-/load?folder=PATH        objects of the models and rows in PATH
    /-/delete?prefix=TEXT      objects whose keys begin so go
    /-/get?path=/B/K, /-/list, /-/uploads   an object, all keys, the number of uploads that are not completed
"""
import base64
import collections
import datetime
import email.utils
import hashlib
import hmac
import http.server
import json
import pathlib
import re
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree
import xml.sax.saxutils

from with_parent import end_with_parent

KEYS = {"AKIDTEST": "secretTESTkey"}
ROLE = "ROLEKEY"
Stored = collections.namedtuple("Stored", "data etag changed")


class State:
    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.RLock()
        self.objects, self.uploads, self.faults, self.roles = {}, {}, [], {}
        self.skew, self.page, self.expires, self.conditions = 0.0, 1000, 3600.0, True
        self.count = 0

    def now(self):
        return time.time() + self.skew


def quote(text, safe="-._~"):
    return urllib.parse.quote(text, safe=safe)


class Failure(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "s3-of-tests"

    def log_message(self, *arguments):
        pass

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(self.server.state.now() if timestamp is None else timestamp, usegmt=True)

    # ---- Signatures: AWS, "Authenticating Requests (AWS Signature Version 4)" ----

    def check_signature(self, body):
        state, head = self.server.state, self.headers
        found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?"
                             r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})", head.get("Authorization", ""))
        if not found:
            raise Failure(403, "AccessDenied", "no signature")
        access, day, region, names, signature = found.groups()
        stamp = head.get("x-amz-date", "")
        sent = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc).timestamp()
        if abs(sent - state.now()) > 900:
            raise Failure(403, "RequestTimeTooSkewed", "the clocks differ")
        secret = KEYS.get(access)
        if access in state.roles:
            secret, token, ends = state.roles[access]
            if head.get("x-amz-security-token") != token:
                raise Failure(403, "InvalidToken", "a wrong token")
            if state.now() > ends:
                raise Failure(400, "ExpiredToken", "the token has expired")
        if secret is None:
            raise Failure(403, "InvalidAccessKeyId", "unknown key")
        content = head.get("x-amz-content-sha256", "")
        if content != "UNSIGNED-PAYLOAD" and content != hashlib.sha256(body).hexdigest():
            raise Failure(400, "XAmzContentSHA256Mismatch", "the body is another one")
        path, _, query = self.path.partition("?")
        pairs = sorted((quote(k), quote(v)) for k, v in urllib.parse.parse_qsl(query, keep_blank_values=True))
        lines = [self.command, quote(urllib.parse.unquote(path), "/-._~"), "&".join(f"{k}={v}" for k, v in pairs)]
        lines += [f"{name}:{' '.join(head.get(name, '').split())}" for name in names.split(";")]
        lines += ["", names, content]
        if "host" not in names.split(";"):
            raise Failure(403, "AccessDenied", "host is not signed")
        scope = f"{day}/{region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256("\n".join(lines).encode()).hexdigest()])
        key = ("AWS4" + secret).encode()
        for part in (day, region, "s3", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        if not hmac.compare_digest(hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), signature):
            raise Failure(403, "SignatureDoesNotMatch", "the signature is another one")

    # ---- Answers ----

    def answer(self, status, body=b"", headers=(), kind="application/xml", length=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.cut and body:
            self.wfile.write(body[:len(body) // 2])
            self.close_connection = True
        elif self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, failure):
        text = (f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{failure.code}</Code>'
                f"<Message>{failure.message}</Message></Error>").encode()
        self.answer(failure.status, b"" if self.command == "HEAD" else text)

    def handle_request(self):
        state, self.cut, lost = self.server.state, False, False
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        what = f"{self.command} {self.path}"
        with state.lock:
            with open(state.folder / "log", "a") as log:
                log.write(f"{what} {self.headers.get('Range', '-')} {self.headers['Host']}\n")
            if self.path.startswith("/-/"):
                return self.control(body)
            for fault in state.faults:
                if fault["times"] > 0 and re.search(fault["match"], what):
                    fault["times"] -= 1
                    kind = fault["do"]
                    self.cut, lost = kind == "cut", kind == "lost"
                    if kind in ("503", "429"):
                        return self.fail(Failure(int(kind), "SlowDown", "reduce your request rate"))
                    if kind == "wrong":
                        body = b"?" + body[1:]
                    if kind == "denied":
                        return self.fail(Failure(403, "AccessDenied", "no right to this"))
                    if kind == "expired":
                        return self.fail(Failure(400, "ExpiredToken", "the token has expired"))
                    break
            if lost:
                self.answer = lambda *arguments, **more: setattr(self, "close_connection", True)
            try:
                self.check_signature(body)
                self.serve(body)
            except Failure as failure:
                self.fail(failure)
            finally:
                if lost:
                    del self.answer

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_request

    # ---- Requests ----

    def serve(self, body):
        state = self.server.state
        path, _, text = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
        if self.headers["Host"].startswith("bucket."):  # the bucket stands before the host
            path = "/bucket" + path
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        if bucket != "bucket":
            raise Failure(404, "NoSuchBucket", "there is no such bucket")
        if not key:
            if self.command != "GET" or query.get("list-type") != "2":
                raise Failure(400, "InvalidRequest", "only lists of a bucket")
            return self.list(query)
        if "uploads" in query and self.command == "POST":
            state.count += 1
            state.uploads[f"upload {state.count}/+"] = {}
            return self.answer(200, f"<InitiateMultipartUploadResult><UploadId>upload {state.count}/+</UploadId>"
                                    "</InitiateMultipartUploadResult>".encode())
        if "uploadId" in query:
            return self.part(key, query, body)
        getattr(self, self.command.lower())(key, body)

    def part(self, key, query, body):
        state = self.server.state
        parts = state.uploads.get(query["uploadId"])
        if parts is None:
            raise Failure(404, "NoSuchUpload", "there is no such upload")
        if self.command == "PUT":
            etag = f'"{hashlib.md5(body).hexdigest()}"'
            parts[int(query["partNumber"])] = (body, etag)
            return self.answer(200, headers=[("ETag", etag)])
        del state.uploads[query["uploadId"]]
        if self.command == "DELETE":
            return self.answer(204)
        listed = [{re.sub("{.*}", "", member.tag): member.text for member in part}
                  for part in xml.etree.ElementTree.fromstring(body)]
        if ([int(part["PartNumber"]) for part in listed] != sorted(parts) or
                any(parts[int(part["PartNumber"])][1].strip('"') != part["ETag"].strip('"') for part in listed)):
            raise Failure(400, "InvalidPart", "parts differ")
        data = b"".join(parts[n][0] for n in sorted(parts))
        etag = self.store(key, data, f"-{len(parts)}")
        self.answer(200, f"<CompleteMultipartUploadResult><ETag>{xml.sax.saxutils.escape(etag)}</ETag>"
                         "</CompleteMultipartUploadResult>".encode())

    def store(self, key, data, ending=""):
        state = self.server.state
        etag = f'"{hashlib.md5(data).hexdigest()}{ending}"'
        state.objects[key] = Stored(data, etag, state.now())
        return etag

    def find(self, key):
        found = self.server.state.objects.get(key)
        if found is None:
            raise Failure(404, "NoSuchKey", "there is no such key")
        return found

    def facts(self, found):
        return [("ETag", found.etag), ("Last-Modified", self.date_time_string(found.changed))]

    def get(self, key, body):
        found = self.find(key)
        if self.headers.get("If-Match", found.etag) != found.etag:
            raise Failure(412, "PreconditionFailed", "another object")
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return self.answer(200, found.data, self.facts(found), "application/octet-stream")
        first, last = int(asked[1]), int(asked[2] or len(found.data))
        if first >= len(found.data):
            raise Failure(416, "InvalidRange", "behind the end")
        data = found.data[first:last + 1]
        span = ("Content-Range", f"bytes {first}-{first + len(data) - 1}/{len(found.data)}")
        self.answer(206, data, self.facts(found) + [span], "application/octet-stream")

    def head(self, key, body):
        found = self.find(key)
        self.answer(200, b"", self.facts(found), "application/octet-stream", len(found.data))

    def put(self, key, body):
        state, there = self.server.state, self.server.state.objects.get(key)
        if state.conditions:
            if self.headers.get("If-None-Match") == "*" and there:
                raise Failure(412, "PreconditionFailed", "there is one")
            wanted = self.headers.get("If-Match")
            if wanted and not there:
                raise Failure(404, "NoSuchKey", "there is none")
            if wanted and there.etag != wanted:
                raise Failure(412, "PreconditionFailed", "another object")
        self.answer(200, headers=[("ETag", self.store(key, body))])

    def delete(self, key, body):
        self.server.state.objects.pop(key, None)
        self.answer(204)

    def list(self, query):
        state, prefix, limit = self.server.state, query.get("prefix", ""), query.get("delimiter", "")
        after = base64.b64decode(query.get("continuation-token", "")).decode()
        most, out, seen, last, truncated = min(int(query.get("max-keys", state.page)), state.page), [], set(), "", False
        for key in sorted(state.objects):
            rest = key[len(prefix):]
            if not key.startswith(prefix):
                continue
            name = prefix + rest.split(limit)[0] + limit if limit and limit in rest else key
            if name <= after or name in seen:
                continue
            if len(out) == most:
                truncated = True
                break
            seen.add(name)
            last, text = name, xml.sax.saxutils.escape(name)
            out.append(f"<Contents><Key>{text}</Key><Size>{len(state.objects[key].data)}</Size></Contents>" if name == key
                       else f"<CommonPrefixes><Prefix>{text}</Prefix></CommonPrefixes>")
        token = base64.b64encode(last.encode()).decode()
        self.answer(200, ('<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
                          f"<Name>bucket</Name><Prefix>{xml.sax.saxutils.escape(prefix)}</Prefix>" + "".join(out) +
                          f"<IsTruncated>{str(truncated).lower()}</IsTruncated>" +
                          (f"<NextContinuationToken>{token}</NextContinuationToken>" if truncated else "") +
                          "</ListBucketResult>").encode())

    # ---- Controls of tests, STS and the container's server ----

    def role(self):
        state = self.server.state
        state.count += 1
        access, secret, token = f"{ROLE}{state.count}", f"rolesecret{state.count}", f"roletoken{state.count}=="
        ends = state.now() + state.expires
        state.roles[access] = (secret, token, ends)
        return access, secret, token, datetime.datetime.fromtimestamp(ends, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def instance(self, path):
        """Version 2 of EC2's instance metadata service."""
        if path == "api/token":
            allowed = self.command == "PUT" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "").isdigit()
            return self.answer(200, b"metadatatoken==") if allowed else self.answer(400)
        if self.headers.get("X-aws-ec2-metadata-token") != "metadatatoken==":
            return self.answer(401)
        if path == "meta-data/iam/security-credentials/":
            return self.answer(200, b"the-role")
        if path != "meta-data/iam/security-credentials/the-role":
            return self.answer(404)
        access, secret, token, ends = self.role()
        self.answer(200, json.dumps({"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": access, "SecretAccessKey": secret,
                                     "Token": token, "Expiration": ends}).encode(), kind="application/json")

    def control(self, body):
        state = self.server.state
        name, _, text = self.path[3:].partition("?")
        query = dict(urllib.parse.parse_qsl(text))
        if name == "fault" and "clear" in query:
            state.faults.clear()
        elif name == "fault":
            state.faults.append({"match": query["match"], "do": query["do"], "times": int(query["times"])})
        elif name == "skew":
            state.skew = float(query["seconds"])
        elif name == "conditions":
            state.conditions = query["on"] == "1"
        elif name == "age":
            key = query["path"].split("/", 2)[2]
            state.objects[key] = state.objects[key]._replace(changed=state.now() - float(query["seconds"]))
        elif name == "damage":
            key = query["path"].split("/", 2)[2]
            data = state.objects[key].data
            middle = len(data) // 2
            self.store(key, data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:])
        elif name == "dump":
            for key, found in state.objects.items():
                (pathlib.Path(query["folder"]) / key.replace("/", "%")).write_bytes(found.data)
        elif name == "page":
            state.page = int(query["keys"])
        elif name == "role":
            state.expires = float(query["expires"])
        elif name == "delete":
            for key in [key for key in state.objects if key.startswith(query["prefix"])]:
                del state.objects[key]
        elif name == "uploads":
            return self.answer(200, str(len(state.uploads)).encode(), kind="text/plain")
        elif name == "get":
            return self.answer(200, state.objects[query["path"].split("/", 2)[2]].data)
        elif name == "load":
            folder = pathlib.Path(query["folder"])
            for path in [path for name in ("base/*", "rows/*", "model/*", "*.jsonl") for path in folder.glob(name)]:
                self.store(str(path.relative_to(folder)), path.read_bytes())
        elif name == "list":
            return self.answer(200, "".join(f"{key}\n" for key in sorted(state.objects)).encode(), kind="text/plain")
        elif name == "sts/":
            form = dict(urllib.parse.parse_qsl(body.decode()))
            if form.get("WebIdentityToken") != "identity+of/pod=" or form.get("Action") != "AssumeRoleWithWebIdentity":
                return self.fail(Failure(400, "InvalidIdentityToken", "a wrong identity"))
            access, secret, token, ends = self.role()
            return self.answer(200, ("<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
                                     f"<AccessKeyId>{access}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
                                     f"<SessionToken>{token}</SessionToken><Expiration>{ends}</Expiration></Credentials>"
                                     "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>").encode())
        elif name == "container":
            if self.headers.get("Authorization") != "token of the pod":
                return self.fail(Failure(403, "AccessDenied", "a wrong token"))
            access, secret, token, ends = self.role()
            return self.answer(200, json.dumps({"AccessKeyId": access, "SecretAccessKey": secret, "Token": token,
                                                "Expiration": ends}).encode(), kind="application/json")
        elif name.startswith("instance/latest/"):
            return self.instance(name[len("instance/latest/"):])
        else:
            return self.answer(404)
        self.answer(200)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def main():
    end_with_parent()
    folder = pathlib.Path(sys.argv[1])
    server = Server(("127.0.0.1", 0), Handler)
    server.state = State(folder)
    (folder / "port.new").write_text(f"{server.server_address[1]}\n")
    (folder / "port.new").rename(folder / "port")
    server.serve_forever()


if __name__ == "__main__":
    main()
