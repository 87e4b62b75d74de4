#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of several devices compared with one, on the same processors with the same
batches.

    tests/bench/spmd.py [--build=build/release] [--cases=replica-8,fsdp-8,tensor-2] [--tokens=16384]
        [--threads=2] [--steps=6] [--warmup=2] [--rounds=3] [--dtype=f32] [--under="chrt -r 1"]

The model is bench.Gpt2Small (13.8M parameters). Runs are interleaved, so that other load affects
all of them equally. A step's time is the median over all rounds without each run's first steps;
ratios are of medians. "In collectives" is the share of the last step that the first device spends
in collectives, including waiting. Losses are compared too: different losses are an error. A case
may have other numerics: fsdp-8:mesh_invariant. Needs `ninja runexp experiment_bench`;
docs/performance.md has the results.
"""
import argparse
import gzip
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ALL = "batch -> (replica, data)"
TENSOR = "mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl"
CASES = {  # mesh, weights, activations
    "one": ([1, 1, 1], "", ALL),
    "replica-2": ([2, 1, 1], "", ALL),
    "replica-4": ([4, 1, 1], "", ALL),
    "replica-8": ([8, 1, 1], "", ALL),
    "fsdp-8": ([1, 8, 1], "embed -> data", ALL),
    "tensor-2": ([1, 1, 2], TENSOR, f"{ALL}, {TENSOR}"),
    "fsdp-4-tensor-2": ([1, 4, 2], f"embed -> data, {TENSOR}", f"{ALL}, {TENSOR}"),
}
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute",
               "send", "receive")
SEQ_LEN = 256
TOLERANCE = 1e-3  # For losses: rounding, also in bf16.


def run(args, name, folder):
    case, _, numerics = name.partition(":")
    mesh, weights, activations = CASES[case]
    devices = mesh[0] * mesh[1] * mesh[2]
    shutil.rmtree(folder, ignore_errors=True)
    command = args.under.split() + [
        f"{args.build}/bin/runexp", "--exp=bench.Gpt2Small", f"--job_log_dir={folder}",
        f"--threads={args.threads}", f"--devices={devices}", f"--set=ici_mesh_shape={mesh}",
        f"--set=rules.weights={weights}", f"--set=rules.activations={activations}",
        f"--set=global_batch_size={args.tokens // SEQ_LEN}",
        f"--set=task.train.numerics={numerics or 'standard'}",
        f"--set=num_train_steps={args.steps + args.warmup}", f"--set=compute_dtype={args.dtype}",
        f"--profile={args.steps + args.warmup - 1}:1"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line], in_collectives(folder / "trace.json.gz")


def in_collectives(trace):
    events = json.loads(gzip.open(trace).read())["traceEvents"]
    first = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    whole = sum(event["dur"] for event in first if event["name"].startswith("step "))
    return sum(event["dur"] for event in first if event["name"] in COLLECTIVES) / whole


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--cases", default="replica-8,fsdp-8,tensor-2")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--under", default="")
    args = parser.parse_args()
    names = ["one"] + args.cases.split(",")
    times = {name: [] for name in names}
    losses, shares = {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        for _ in range(args.rounds):
            for name in names:
                lines, shares[name] = run(args, name, pathlib.Path(temporary) / name)
                times[name] += [line["step_time"] for line in lines[args.warmup:]]
                losses[name] = [line["loss"] for line in lines]
    one = statistics.median(times["one"])
    for name in names:
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses[name], losses["one"]))
        median = statistics.median(times[name])
        print(f"{name}: {median * 1e3:.0f} ms a step, {args.tokens / median:.0f} tokens/s, "
              f"{one / median:.3f} of one device, {shares[name]:.1%} in collectives, "
              f"losses within {worst:.1e}", flush=True)
        if worst > TOLERANCE:
            sys.exit(f"{name} computes something else")


if __name__ == "__main__":
    main()
