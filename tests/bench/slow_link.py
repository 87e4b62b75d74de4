#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Overlap of communication and compute: training steps of two hosts over a link of limited rate.

    tests/bench/slow_link.py [--build=build/release] [--rates=1gbit,2gbit] [--strategies=fsdp,dp]
        [--batch=8] [--steps=8] [--rounds=2] [--under="chrt -r 1"]

The hosts are two network namespaces (tests/support/two_hosts.sh, needs root), each with one
process, one device and one thread. Four times are measured or computed for the same model (GPT-2
with a small vocabulary):

  step       over the limited link
  compute    two processes at the same time, each with a host's share and no communication
  traffic    like `step`, but with very few tokens: the cost of the link alone
  serial     the time of a step without overlap: compute + traffic

The goal is step <= max(compute, traffic) + 15 % of the smaller. All are medians over the steps from
3, with rounds interleaved. Needs `ninja runexp experiment_bench tessera_mpi`.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = {"fsdp": "embed -> data", "dp": ""}
WARMUP = 2
FEW_TOKENS = 16


def settings(args, strategy, batch, length, hosts):
    values = {"num_layers": args.layers, "model_dims": args.dims, "num_heads": args.dims // 64,
              "vocab_size": 512, "seq_len": length, "global_batch_size": batch,
              "num_train_steps": WARMUP + args.steps, "ici_mesh_shape": "[1,1,1]",
              "dcn_mesh_shape": f"[1,{hosts},1]", "rules.weights": RULES[strategy],
              "task.train.metrics_interval_steps": 1}
    return [f"--set={name}={value}" for name, value in values.items()]


def command(args, strategy, batch, length, hosts, folder):
    shutil.rmtree(folder, ignore_errors=True)
    return ([f"{args.build}/bin/runexp", "--exp=bench.Gpt2Small", "--threads=1",
             f"--job_log_dir={folder}"] + settings(args, strategy, batch, length, hosts))


def step_times(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["step_time"] for line in lines if "loss" in line][WARMUP:]


def over_link(args, strategy, rate, batch, length, folder):
    launch = [f"{ROOT}/tests/support/two_hosts.sh", f"--rate={rate}"] + args.under.split()
    launch += ["mpirun", "--bind-to", "core", "--map-by", "slot", "--oversubscribe", "-n", "2"]
    if args.unbound:
        launch[launch.index("core")] = "none"
    run(launch + command(args, strategy, batch, length, 2, folder))
    return step_times(folder)


def side_by_side(args, strategy, batch, length, folder):
    """Two runs of one device each, at the same time: the compute time of a host."""
    runs = []
    for number in range(2):
        own = folder.with_name(f"{folder.name}_{number}")
        line = args.under.split() + command(args, strategy, batch // 2, length, 1, own)
        runs.append((own, subprocess.Popen(line, stdout=subprocess.DEVNULL)))
    times = []
    for own, process in runs:
        if process.wait() != 0:
            raise SystemExit(f"failed: {own}")
        times += step_times(own)
    return times


def run(line):
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(line)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def measure(args, strategy, rate, folder):
    samples = {"step": [], "compute": [], "traffic": [], "idle": []}
    few = max(2, FEW_TOKENS // 8)
    for _ in range(args.rounds):
        samples["compute"] += side_by_side(args, strategy, args.batch, args.length, folder / "alone")
        samples["idle"] += side_by_side(args, strategy, few, 8, folder / "idle")
        samples["step"] += over_link(args, strategy, rate, args.batch, args.length, folder / "both")
        samples["traffic"] += over_link(args, strategy, rate, few, 8, folder / "few")
    times = {name: statistics.median(values) for name, values in samples.items()}
    # Compute for the few tokens, mainly the weight update, is not traffic.
    times["traffic"] -= times.pop("idle")
    return times


def report(strategy, rate, times):
    step, compute, traffic = times["step"], times["compute"], times["traffic"]
    smaller = min(compute, traffic)
    goal = max(compute, traffic) + 0.15 * smaller
    hidden = (compute + traffic - step) / smaller
    print(f"{strategy:5} {rate:8} step {step:.3f} s  compute {compute:.3f}  traffic {traffic:.3f}  "
          f"serial {compute + traffic:.3f}  goal {goal:.3f}  {100 * hidden:.0f} % of the smaller "
          f"hidden  {'met' if step <= goal else 'MISSED'}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=str(ROOT / "build/release"))
    parser.add_argument("--rates", default="1gbit")
    parser.add_argument("--strategies", default="fsdp,dp")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dims", type=int, default=384)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--under", default="")
    parser.add_argument("--unbound", action="store_true", help="do not bind processes to cores")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for strategy in args.strategies.split(","):
            for rate in args.rates.split(","):
                report(strategy, rate, measure(args, strategy, rate, pathlib.Path(folder)))


if __name__ == "__main__":
    main()
