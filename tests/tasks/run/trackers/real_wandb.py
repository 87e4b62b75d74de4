#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with the tracker `wandb` offline, then `wandb sync` sends the run to a stand-in for the server.

    real_wandb.py RUNEXP

Fails if a row, the configuration or the summary does not arrive.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import wandb_server


def main():
    server = wandb_server.start()
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        offline = {**os.environ, "WANDB_MODE": "offline", "TESSERA_PYTHON": sys.executable}
        train = [sys.argv[1], "--exp=quickstart.SourceLm", "--smoke", f"--job_log_dir={run}"]
        for setting in ('trackers={w={type="wandb"}}', "tracker_wait_seconds=90"):
            train += ["--set", "task.train." + setting]
        subprocess.run(train, check=True, stdout=subprocess.DEVNULL, env=offline)
        (kept,) = (run / "trackers/wandb").glob("offline-run-*")
        address = f"http://127.0.0.1:{server.server_port}"
        sync = {**os.environ, "WANDB_BASE_URL": address, "WANDB_API_KEY": "a" * 40}
        subprocess.run([sys.executable, "-m", "wandb", "sync", "--yes", str(kept)], check=True, env=sync, cwd=folder,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        check(run, server.uploads)


def check(run, uploads):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = {line["step"]: line["loss"] for line in lines if "loss" in line}
    history = [json.loads(line) for line in uploads["wandb-history.jsonl"].splitlines() if line]
    assert rows and {row["trainer_step"]: row["loss"] for row in history if "loss" in row} == rows, history
    assert "num_train_steps" in uploads["config"] + uploads.get("config.yaml", ""), uploads.keys()
    summary = json.loads(uploads["wandb-summary.json"])
    assert summary["end"] == "done" and summary["loss"] == rows[max(rows)], summary
    print(f"wandb sync sent {len(history)} rows of {len(rows)} steps, the configuration and the summary")


if __name__ == "__main__":
    main()
