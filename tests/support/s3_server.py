# SPDX-License-Identifier: Apache-2.0
"""A server with the part of S3 that Tessera uses, for tests: python3 s3_server.py [--clock_offset=SECONDS]
[--least_part=BYTES] [--most_keys=KEYS_OF_A_LIST]. It prints two ports, of the server and of another host to which it redirects, keeps objects in
memory, and ends when its standard input is closed. With --forward=HOST:PORT it passes requests on
to that server after it has compared each body with the hash that is signed, and faults are planted on the way.

/<bucket>/<key>   S3's API; signatures (SigV4, and Google's with its headers) are checked, except those of anonymous reads of the bucket `public`
/_public/<bucket>/<key>   GET and HEAD as of any web server; PUT and DELETE for tests, without a signature
/api/models/ORG/NAME/tree/REV, /ORG/NAME/resolve/REV/PATH   Hugging Face's API, of the objects hf/ORG/NAME/PATH; names
                  that begin with `private` need the token hf_test_token
/_faults (POST)   JSON: a list of {"method", "match": regular expression of the path, "times", "every": one in so many requests, "do"} (do_fault)
/_log, /_objects, /_uploads (GET)   JSON: the requests so far, the names of objects, the unfinished uploads
"""

import calendar
import hashlib
import hmac
import http.client
import itertools
import json
import re
import socket
import struct
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

HF_TOKEN = "hf_test_token"
# By the kind of a signature: the key and its secret, the service, and the prefix of headers.
KEYS = {"AWS4": ("TESTKEYID", "test/secret+key", "s3", "x-amz-"), "GOOG4": ("GOOGKEY", "google/secret+key", "storage", "x-goog-")}
OPTIONS = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
CLOCK_OFFSET = float(OPTIONS.get("clock_offset", 0))
LEAST_PART = int(OPTIONS.get("least_part", 5 << 20))
MOST_KEYS = int(OPTIONS.get("most_keys", 1000))
FORWARD = OPTIONS.get("forward")
LOCK = threading.RLock()
OBJECTS = {}  # "bucket/key": (bytes, etag, time, generation)
UPLOADS = {}  # Id: ("bucket/key", {number: bytes})
LOG, FAULTS = [], []
NUMBERS = itertools.count(1)
REFUSALS = {
    "500": (500, "InternalError", "We encountered an internal error. Please try again."),
    "503": (503, "SlowDown", "Please reduce your request rate."),
    "expired": (403, "ExpiredToken", "The provided token has expired."),
    "denied": (403, "AccessDenied", "Access Denied"),
    "full": (507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold."),
    "quota": (403, "QuotaExceeded", "The bucket's quota is exceeded."),
}


class Refused(Exception):
    def __init__(self, status, code, message="", headers=()):
        super().__init__(code)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers)


def quoted(data):
    return '"%s"' % hashlib.md5(data).hexdigest()


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fault = None

    def date_time_string(self, timestamp=None):
        return super().date_time_string(time.time() + CLOCK_OFFSET)

    def log_message(self, *_):
        pass

    def send(self, status, body=b"", headers=()):
        if self.is_fault("lost_reply"):
            return self.reset()
        self.entry["status"] = status
        self.send_response(status)
        for name, value in dict({"Content-Length": str(len(body))}, **dict(headers)).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_xml(self, text):
        text = '<?xml version="1.0" encoding="UTF-8"?>\n' + text
        self.send(200, text.encode(), {"Content-Type": "application/xml"})

    def handle_request(self):
        url = urlsplit(self.path)
        self.name = unquote(url.path).lstrip("/")
        self.query = dict(parse_qsl(url.query, keep_blank_values=True))
        hidden = ("authorization", "x-amz-security-token")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in hidden}
        self.entry = dict(method=self.command, path=self.path, headers=headers, port=self.server.server_port,
                          has_credentials="authorization" in self.headers)
        length = int(self.headers.get("Content-Length") or 0)
        self.fault, self.is_google = None, False
        try:
            if not self.name.startswith("_") or self.name.startswith("_public/"):
                with LOCK:
                    LOG.append(self.entry)
                    self.fault = self.take_fault()
            if self.fault and self.fault["do"] == "reset" and self.command in ("PUT", "POST"):
                self.rfile.read(length // 2)
                return self.reset()
            self.body = self.rfile.read(length)
            if self.fault:
                self.do_fault()
            self.answer()
        except Refused as error:
            text = "<Error><Code>%s</Code><Message>%s</Message></Error>" % (error.code, escape(error.message))
            self.send(error.status, text.encode(), {"Content-Type": "application/xml", **error.headers})

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request

    def take_fault(self):
        for fault in FAULTS:
            if fault.get("method", self.command) == self.command and re.search(fault.get("match", ""), self.path):
                fault["seen"] = fault.get("seen", 0) + 1
                if fault.setdefault("times", 1 << 30) > 0 and fault["seen"] % fault.get("every", 1) == 0:
                    fault["times"] -= 1
                    return fault
        return None

    def do_fault(self):
        do = self.fault["do"]
        time.sleep(self.fault.get("seconds", 0))  # Of any fault; "slow" does nothing else.
        if do in REFUSALS:
            headers = {"Retry-After": self.fault.get("retry_after", "1")} if do == "503" else {}
            raise Refused(*REFUSALS[do], headers)
        if do == "redirect":
            place = "http://127.0.0.1:%d%s" % (self.server.other, self.path)
            raise Refused(307, "TemporaryRedirect", "", {"Location": self.fault.get("to", place)})

    def reset(self):
        """Ends the connection without a reply or in the middle of one."""
        self.entry["status"] = 0
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def is_fault(self, name):
        return self.fault is not None and self.fault["do"] == name

    def answer(self):
        if self.name.startswith("_public/"):
            self.name = self.name.removeprefix("_public/")
            if self.server.is_other and self.headers.get("Authorization"):
                raise Refused(400, "InvalidArgument", "Only one auth mechanism allowed")
            return self.object_request()
        if self.name.startswith("_"):
            return self.control()
        if FORWARD:
            return self.forward()
        if hugging_face := re.fullmatch(r"(api/)?(?:(?:models|datasets)/)?([^/]+/[^/]+)/(tree|resolve)/([^/]+)/?(.*)", self.name):
            return self.hugging_face(*hugging_face.groups())
        if not (self.name.split("/")[0] == "public" and self.command in ("GET", "HEAD") and not self.headers.get("Authorization")):
            self.check_signature()
        if self.command == "GET" and "list-type" in self.query:
            return self.list_objects()
        return self.multipart() if {"uploads", "uploadId"} & set(self.query) else self.object_request()

    def control(self):
        with LOCK:
            if self.name == "_faults":
                FAULTS[:] = [dict(fault, planted=time.time()) for fault in json.loads(self.body)]
            reply = {"_log": LOG, "_objects": sorted(OBJECTS), "_uploads": list(UPLOADS), "_faults": FAULTS}[self.name]
            self.send(200, json.dumps(reply).encode(), {"Content-Type": "application/json"})

    def forward(self):
        if self.headers.get("x-amz-content-sha256") != hashlib.sha256(self.body).hexdigest():
            raise Refused(400, "XAmzContentSHA256Mismatch", "The provided x-amz-content-sha256 header does not match.")
        server = http.client.HTTPConnection(FORWARD)
        server.request(self.command, self.path, self.body, dict(self.headers))  # With the host that is signed.
        reply = server.getresponse()
        headers = {name: value for name, value in reply.getheaders() if name.lower() not in ("transfer-encoding", "connection", "date", "server")}
        data = reply.read()
        server.close()
        self.send_object(reply.status, data, headers)

    def check_signature(self):
        given = re.fullmatch(r"(AWS4|GOOG4)-HMAC-SHA256 Credential=([^/]+)/((\d+)/([^/]+)/(\w+)/(\w+)), ?SignedHeaders=([^,]+), ?Signature=(\w+)",
                             self.headers.get("Authorization") or "")
        if not given:
            raise Refused(403, "AccessDenied", "Access Denied")
        kind, key, scope, day, region, service, end, signed, signature = given.groups()
        key_id, secret, own_service, prefix = KEYS[kind]
        if key != key_id:
            raise Refused(403, "InvalidAccessKeyId", "The key ID does not exist in our records.")
        if (service, end) != (own_service, kind.lower() + "_request"):
            raise Refused(400, "AuthorizationHeaderMalformed", "The credential scope is not valid.")
        self.is_google = kind == "GOOG4"
        date, payload = self.headers.get(prefix + "date", ""), self.headers.get(prefix + "content-sha256", "")
        now = time.time() + CLOCK_OFFSET
        if abs(calendar.timegm(time.strptime(date, "%Y%m%dT%H%M%SZ")) - now) > 900:
            raise Refused(403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.",
                          {"Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now))})
        if payload not in ("UNSIGNED-PAYLOAD", hashlib.sha256(self.body).hexdigest()):
            raise Refused(400, "XAmzContentSHA256Mismatch", "The provided x-amz-content-sha256 header does not match.")
        required = {name.lower() for name in self.headers if name.lower().startswith(("x-amz-", "x-goog-"))} | {"host"}
        if required - set(signed.split(";")) or any(not name.startswith(prefix) for name in required - {"host"}):
            raise Refused(403, "AccessDenied", "There were headers present in the request which were not signed")
        pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in
                       parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        request = "\n".join([self.command, quote(unquote(urlsplit(self.path).path), safe="/-_.~"), "&".join(map("=".join, pairs)),
                             *(name + ":" + " ".join((self.headers.get(name) or "").split()) for name in signed.split(";")),
                             "", signed, payload])
        text = "\n".join([kind + "-HMAC-SHA256", date, scope, hashlib.sha256(request.encode()).hexdigest()])
        secret = (kind + secret).encode()
        for part in (day, region, service, end):
            secret = digest(secret, part)
        if not hmac.compare_digest(digest(secret, text).hex(), signature):
            raise Refused(403, "SignatureDoesNotMatch", "Expected the canonical request:\n" + request)

    def check_conditions(self, name):
        if self.is_fault("ignore_conditions"):
            return
        _, etag, _, generation = OBJECTS.get(name, (b"", None, 0, "0"))
        if self.headers.get("x-goog-if-generation-match", generation) != generation:
            raise Refused(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
        wanted = self.headers.get("If-Match")
        if wanted and etag is None and self.command != "GET":
            raise Refused(404, "NoSuchKey", "The specified key does not exist.")
        if (wanted and wanted != etag) or (self.headers.get("If-None-Match") == "*" and etag):
            raise Refused(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")

    def put(self, name, data, etag):
        self.check_conditions(name)
        OBJECTS[name] = (data, etag, time.time(), "%d" % (10 ** 15 + next(NUMBERS)))

    def version_headers(self, name):
        _, etag, _, generation = OBJECTS[name]
        return {"ETag": etag, **({"x-goog-generation": generation} if self.is_google else {})}

    def object_request(self):
        with LOCK:
            if self.command == "PUT":
                self.put(self.name, self.body, quoted(self.body))
                return self.send(200, headers=self.version_headers(self.name))
            if self.command == "DELETE":
                OBJECTS.pop(self.name, None)
                return self.send(204)
            if self.name not in OBJECTS:
                raise Refused(404, "NoSuchKey", "The specified key does not exist.")
            self.check_conditions(self.name)
            data = OBJECTS[self.name][0]
            headers, status = {**self.version_headers(self.name), "Accept-Ranges": "bytes"}, 200
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
            first, last = int(found[1]), min(int(found[2] or len(data)), len(data) - 1)
            if first >= len(data):
                raise Refused(416, "InvalidRange", "The requested range is not satisfiable", {"Content-Range": "bytes */%d" % len(data)})
            headers["Content-Range"] = "bytes %d-%d/%d" % (first, last, len(data))
            status, data = 206, data[first:last + 1]
        self.send_object(status, data, headers)

    def send_object(self, status, data, headers):
        if self.is_fault("reset"):
            self.send(status, data[:len(data) // 2], {**headers, "Content-Length": str(len(data))})
            return self.reset()
        return self.send(status, data, headers)

    def list_objects(self):
        bucket, prefix = self.name.strip("/") + "/", self.query.get("prefix", "")
        after, most = self.query.get("continuation-token", ""), min(MOST_KEYS, int(self.query.get("max-keys", 1000)))
        with LOCK:
            names = sorted(name.removeprefix(bucket) for name, (_, _, when, _) in OBJECTS.items() if name.startswith(bucket + prefix)
                           and not (self.is_fault("stale_list") and when > self.fault["planted"]))
            names = [name for name in names if name > after]
            entries = "".join("<Contents><Key>%s</Key><Size>%d</Size><ETag>%s</ETag>%s</Contents>" % (
                escape(name), len(data), escape(etag, {'"': "&quot;"}), "<Generation>%s</Generation>" % generation if self.is_google else "")
                for name in names[:most] for data, etag, _, generation in [OBJECTS[bucket + name]])
        more = len(names) > most
        token = "<NextContinuationToken>%s</NextContinuationToken>" % escape(names[most - 1]) if more else ""
        self.send_xml("<ListBucketResult><IsTruncated>%s</IsTruncated>%s%s</ListBucketResult>" % (str(more).lower(), token, entries))

    def multipart(self):
        with LOCK:
            if "uploads" in self.query:
                identity = "upload%d+/=" % next(NUMBERS)
                UPLOADS[identity] = (self.name, {})
                return self.send_xml("<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>" % identity)
            identity = self.query["uploadId"]
            if UPLOADS.get(identity, ("",))[0] != self.name:
                raise Refused(404, "NoSuchUpload", "The specified multipart upload does not exist.")
            parts = UPLOADS[identity][1]
            if self.command == "PUT":
                parts[int(self.query["partNumber"])] = self.body
                return self.send(200, headers={"ETag": quoted(self.body)})
            if self.command == "DELETE":
                del UPLOADS[identity]
                return self.send(204)
            text = self.body.decode()
            numbers = [int(number) for number in re.findall(r"<PartNumber>(\d+)</PartNumber>", text)]
            etags = [etag.replace("&quot;", '"').strip('"') for etag in re.findall(r"<ETag>([^<]+)</ETag>", text)]
            if not numbers or numbers != sorted(numbers) or etags != [quoted(parts.get(n, b"\0")).strip('"') for n in numbers]:
                raise Refused(400, "InvalidPart", "One or more of the specified parts could not be found.")
            if any(len(parts[number]) < LEAST_PART for number in numbers[:-1]):
                raise Refused(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")
            md5 = hashlib.md5(b"".join(hashlib.md5(parts[number]).digest() for number in numbers)).hexdigest()
            self.put(self.name, b"".join(parts[number] for number in numbers), '"%s-%d"' % (md5, len(numbers)))
            del UPLOADS[identity]
        return self.send_xml("<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>"
                             % escape(OBJECTS[self.name][1], {'"': "&quot;"}))

    def hugging_face(self, is_api, repository, kind, revision, path):
        if repository.startswith("private") and self.headers.get("Authorization") != "Bearer " + HF_TOKEN:
            raise Refused(401, "RepoNotFound", "Invalid username or password.")
        prefix = "hf/" + repository + "/"
        with LOCK:
            files = {name.removeprefix(prefix): item for name, item in OBJECTS.items() if name.startswith(prefix)}
        if not files or revision == "no_such_revision":
            raise Refused(404, "RepoNotFound", "Repository not found")
        if is_api and kind == "tree":
            rows = [dict(type="file", path=name, size=len(data), oid=etag.strip('"')) for name, (data, etag, _, _) in sorted(files.items())
                    if name.startswith(path)]
            return self.send(200, json.dumps(rows).encode(), {"Content-Type": "application/json"})
        if path not in files:
            raise Refused(404, "EntryNotFound", "Entry not found")
        host = "" if path.endswith(".json") else "http://127.0.0.1:%d" % self.server.other
        return self.send(302, headers={"Location": host + quote("/_public/" + prefix + path), "X-Linked-Etag": files[path][1],
                                       "X-Linked-Size": str(len(files[path][0])), "X-Repo-Commit": "c0ffee"})


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass  # A client that closed its connection.


servers = [Server(("127.0.0.1", 0), Handler) for _ in range(2)]
for server, other, server.is_other in zip(servers, servers[::-1], (False, True)):
    server.other = other.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(*(server.server_port for server in servers), flush=True)
sys.stdin.read()
