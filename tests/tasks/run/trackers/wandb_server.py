# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the server of Weights & Biases: enough for `wandb sync` of an offline run. `uploads` has the contents
of each file that it streams ("wandb-history.jsonl") or uploads, by name."""

import gzip
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RUN = dict(
    id="UnVuOjE=", displayName="run", description="", config="{}", sweepName=None, historyLineCount=0, host="",
    project=dict(id="p1", name="tessera", entity=dict(id="e1", name="tester")), createdAt="2026-01-01T00:00:00Z",
    heartbeatAt="2026-01-01T00:00:00Z", program="", commit="", state="running", tags=[], notes="", group="", jobType="",
    stopped=False, fileCount=0, summaryMetrics="{}",
)
VERSIONS = {"max_cli_version": "99.0.0", "min_cli_version": "0.0.1"}
VIEWER = dict(id="u1", entity="tester", username="tester", flags="{}", teams={"edges": []}, name="tester", email="", admin=False)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, value):
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def body(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def do_GET(self):
        self.reply({})

    def do_PUT(self):
        self.server.uploads[self.path.removeprefix("/up/")] = self.body().decode("utf8", "replace")
        self.reply({})

    def do_POST(self):
        body = self.body()
        if "file_stream" in self.path:
            for name, chunk in (json.loads(body).get("files") or {}).items():
                before = self.server.uploads.get(name, "") if name.endswith(".jsonl") else ""
                self.server.uploads[name] = before + "\n".join(chunk["content"]) + "\n"
        if self.path != "/graphql":
            return self.reply({"exitcode": None, "limits": {}})
        asked = json.loads(body)
        query, variables = asked["query"], asked.get("variables") or {}
        return self.reply({"data": self.answer(query, variables)})

    def answer(self, query, variables):
        if "upsertBucket" in query:
            if variables.get("config"):
                self.server.uploads["config"] = variables["config"]
            return {"upsertBucket": {"bucket": {**RUN, "name": variables.get("name") or "r"}, "inserted": True}}
        if "viewer" in query:
            info = {"cliVersionInfo": VERSIONS, "latestLocalVersionInfo": None, "features": []}
            return {"viewer": VIEWER, "serverInfo": info}
        if "serverInfo" in query:
            return {"serverInfo": {"features": [], "cliVersionInfo": VERSIONS}}
        if "createRunFiles" in query:
            address = "http://127.0.0.1:%d/up/" % self.server.server_port
            files = [{"name": name, "uploadUrl": address + name} for name in variables.get("files", [])]
            return {"createRunFiles": {"runID": "UnVuOjE=", "uploadHeaders": [], "files": files}}
        if "__type" in query:
            return {key: {"fields": [], "inputFields": []} for key in re.findall(r"(\w+)\s*:\s*__type", query)}
        if "RunStoppedStatus" in query:
            return {"project": {"run": {"stopped": False}}}
        return {"project": None, "model": None, "organization": None}


def start():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.uploads = {}
    server.handle_error = lambda *_: None  # A client that closed its connection.
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
