#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with the tracker `mlflow` against MLflow's own server on loopback, and asks it for the run.

    real_mlflow.py RUNEXP

Fails if a row, a parameter, a tag or the status differs from the run's directory.
"""

import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from mlflow.tracking import MlflowClient


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(url):
    for _ in range(240):
        try:
            return urllib.request.urlopen(url, timeout=1).read()
        except OSError:
            time.sleep(0.5)
    sys.exit("the server did not start")


def main():
    with tempfile.TemporaryDirectory() as folder:
        uri = f"http://127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", uri.rsplit(":")[-1]]
        command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/db", "--artifacts-destination"]
        server = subprocess.Popen(command + [f"{folder}/artifacts"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(uri + "/health")
            check(uri, pathlib.Path(folder) / "run")
        finally:
            server.terminate()
            server.wait()


def check(uri, run):
    train = [sys.argv[1], "--exp=quickstart.SourceLm", "--smoke", f"--job_log_dir={run}"]
    for setting in (f'trackers={{m={{type="mlflow", uri="{uri}"}}}}', 'tags=["owner=me"]', "tracker_wait_seconds=60"):
        train += ["--set", "task.train." + setting]
    subprocess.run(train, check=True, stdout=subprocess.DEVNULL)
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("tessera")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED", found.info.status
    assert found.data.tags["owner"] == "me", found.data.tags
    assert any(key.startswith("task.train.") for key in found.data.params), found.data.params
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = {line["step"]: line["loss"] for line in lines if "loss" in line}
    assert rows and {m.step: m.value for m in client.get_metric_history(found.info.run_id, "loss")} == rows
    print(f"mlflow has {len(rows)} rows, {len(found.data.params)} parameters, files:",
          [file.path for file in client.list_artifacts(found.info.run_id)])


if __name__ == "__main__":
    main()
