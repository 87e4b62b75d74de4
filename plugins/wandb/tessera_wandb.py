#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends a run of Tessera to Weights & Biases: follows its metrics.jsonl and samples.jsonl until the run ends.

    plugins/wandb/tessera_wandb.py [--project P] [--entity E] RUN_DIRECTORY

The tracker `wandb` (docs/trackers.md) runs this program with --records, and writes histograms, tags, names of files and
the run's end to its standard input. WANDB_MODE, WANDB_API_KEY and the SDK's other variables apply. Needs `pip install wandb`.
"""

import argparse
import hashlib
import html
import json
import pathlib
import queue
import sys
import threading
import time
import tomllib

import wandb

ENDS = ("done", "failed", "preempt")


class Lines:
    """The complete lines of a file that grows, each once. A resumed run may have replaced the file."""

    def __init__(self, path):
        self.path, self.offset = path, 0

    def read(self):
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self.offset += len(whole) + 1
        return [json.loads(line) for line in whole.splitlines() if line.strip()]


def escaped(rows):
    return [{**row, **{key: html.escape(row.get(key) or "") for key in ("prompt", "continuation")}} for row in rows]


def records_of(stream):
    """Standard input as a queue; None follows the last line."""
    records = queue.Queue()

    def read():
        for line in stream:
            records.put(json.loads(line))
        records.put(None)

    threading.Thread(target=read, daemon=True).start()
    return records


class Follower:
    def __init__(self, directory, run, first_step):
        self.directory, self.run, self.first_step = directory, run, first_step
        self.metrics, self.samples = Lines(directory / "metrics.jsonl"), Lines(directory / "samples.jsonl")
        self.end = None

    def log(self, line):
        if "event" in line:
            self.end = line if line["event"] in ENDS else None
            if "reason" in line:
                self.run.summary[line["event"]] = line["reason"]
        else:
            values = {key: float("nan") if value is None else value for key, value in line.items()}
            self.run.log({"trainer_step": values.pop("step"), **values})

    def log_files(self):
        for line in self.metrics.read():
            if line["step"] >= self.first_step:
                self.log(line)
        rows = [row for row in self.samples.read() if row["step"] >= self.first_step]
        if rows:
            # Not a wandb.Table, which `wandb sync` would upload as an artifact of its own.
            texts = [f"step {row['step']}: {row['prompt']}<b>{row['continuation']}</b>" for row in escaped(rows)]
            page = wandb.Html("<pre>" + "\n\n".join(texts) + "</pre>", inject=False)
            self.run.log({"samples": page, "trainer_step": rows[-1]["step"]})

    def log_record(self, record):
        if record.get("record") == "histogram":
            histogram = wandb.Histogram(np_histogram=(record["counts"], record["edges"]))
            self.run.log({"histograms/" + record["name"]: histogram, "trainer_step": record["step"]})
        elif record.get("record") == "file":
            path = self.directory / record["name"]
            self.run.save(str(path), base_path=str(self.directory), policy="now")
            self.run.log({path.stem: wandb.Html(path.read_text(), inject=False), "trainer_step": record["step"]})
        elif record.get("event") in ENDS:
            return record
        return None


def follow(follower, records):
    """Until the run's end is in its log, or comes from the tracker."""
    end = None
    while end is None:
        follower.log_files()
        end = follower.end if records is None else None
        if records is None:
            time.sleep(0 if end else 1)
            continue
        try:
            record = records.get(timeout=1)
            # Without an end the run's process has gone.
            end = follower.log_record(record) if record else {"event": "failed"}
        except queue.Empty:
            pass
    follower.log_files()
    return end


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--project", default="tessera")
    parser.add_argument("--entity")
    parser.add_argument("--records", action="store_true")
    options = parser.parse_args()
    directory = options.directory.resolve()
    records = records_of(sys.stdin) if options.records else None
    about = records.get() if records else None
    if about is None:
        name = directory.name
        about = {"id": hashlib.sha256(str(directory).encode()).hexdigest()[:16], "name": name, "tags": [], "step": 0}
    run = wandb.init(
        project=options.project,
        entity=options.entity,
        id=about["id"],
        name=about["name"],
        tags=about["tags"],
        dir=directory / "trackers",
        resume="allow",
        config=tomllib.loads((directory / "hparams.toml").read_text()),
    )
    run.define_metric("trainer_step")
    run.define_metric("*", step_metric="trainer_step")
    # A resumed run sent earlier steps before.
    end = follow(Follower(directory, run, about["step"] + 1 if about["step"] else 0), records)
    run.summary["end"] = end["event"]
    run.finish(exit_code=1 if end["event"] == "failed" else 0)


if __name__ == "__main__":
    main()
