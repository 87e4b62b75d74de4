#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second of the quickstart with the machine to itself, and beside another program.

    tests/bench/other_program.py [BUILD ...] [--steps=100] [--rounds=3] [--quota] [-- FLAG ...]

The other program is a loop that keeps the last processor busy. Builds, and runs with and without
the loop, take turns; medians are printed, and the ratio of both. FLAG goes to runexp: --threads=64,
or --devices=4 --set ici_mesh_shape=[4,1,1]. `--quota` limits all to 1.5 processors (control
groups, version 1, as root). Losses that differ are an error. On a machine with other work, start
this in a control group with many shares. Needs `ninja runexp experiment_quickstart`;
docs/performance.md has the results.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUOTA = pathlib.Path("/sys/fs/cgroup/cpu/tessera_bench")


@contextlib.contextmanager
def busy_loop():
    processor = max(os.sched_getaffinity(0))
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                            preexec_fn=lambda: os.sched_setaffinity(0, {processor}))
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def run(build, args):
    """Returns tokens a second after the first two steps, and the losses."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([f"{build}/bin/runexp", "--exp=quickstart.SourceLm",
                        f"--job_log_dir={folder}/run", f"--set=num_train_steps={args.steps}",
                        f"--set=input.path={ROOT}/LICENSE", "--set=sample_length=0",
                        "--set=eval_inputs={}", "--set=task.train.eval_interval_steps=0",
                        *args.flags], check=True, stdout=subprocess.DEVNULL)
        lines = pathlib.Path(f"{folder}/run/metrics.jsonl").read_text().splitlines()
    steps = [row for row in map(json.loads, lines) if "step_time" in row]
    tokens = steps[-1]["tokens"] - steps[1]["tokens"]
    return tokens / sum(row["step_time"] for row in steps[2:]), [row["loss"] for row in steps]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("builds", nargs="*", default=["build/release"])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quota", action="store_true")
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[:own.index("--")], own[own.index("--") + 1:]
    args = parser.parse_args(own)
    args.flags = flags
    if args.quota:
        QUOTA.mkdir(exist_ok=True)
        (QUOTA / "cpu.cfs_quota_us").write_text("150000")
        (QUOTA / "cgroup.procs").write_text(str(os.getpid()))
    rates, losses = {}, None
    for _ in range(args.rounds):
        for build in args.builds:
            for name, beside in (("alone", contextlib.nullcontext), ("beside", busy_loop)):
                with beside():
                    rate, found = run(build, args)
                rates.setdefault((build, name), []).append(rate)
                losses = losses or found
                if found != losses:
                    sys.exit(f"the losses of {build} {name} differ from those of the first run")
    for build in args.builds:
        alone, beside = (statistics.median(rates[build, name]) for name in ("alone", "beside"))
        print(f"{build}: {alone:.0f} tokens/s alone, {beside:.0f} beside a busy loop: "
              f"{beside / alone:.2f}")


if __name__ == "__main__":
    main()
