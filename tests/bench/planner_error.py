#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured step times of twenty configurations on this machine's CPU.

    tests/bench/planner_error.py --one=one.toml --two=two.toml [--build=build/release] [--steps=12]
        [--only=gpt2,experts] [--measured=FILE.json] [--svg=docs/images/planner_error.svg]

Trains each configuration for a few steps and takes the median step time after the first four;
predicts it with --mode=plan and the hardware file of one device (--one) or of two (--two), both
from

    runexp --mode=calibrate --output=one.toml
    runexp --mode=calibrate --devices=2 --output=two.toml

The prices of kernels were improved on the first ten configurations ("known"). The other ten are
checked only ("held out"): nothing was fitted or chosen with them. Prints a table, then the median
and the largest error of each half. --measured keeps measured times: those in the file are not
measured again. Needs `ninja runexp` and the plugins bench, c4, gpt2, seqax and jaxformer.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from plots import INK, Plot, panels

WARMUP = 4
COLOURS = ["#3b82c4", "#d9730d"]  # Colours of the halves.
GPT2 = ["num_layers=4", "model_dims=128", "num_heads=4", "seq_len=256", "vocab_size=2048",
        "global_batch_size=8"]
C4 = ["num_layers=4", "model_dims=256", "num_heads=4", "dims_per_head=64", "vocab_size=2048",
      "seq_len=128", "global_batch_size=16"]
EXPERTS = ["num_blocks=1", "layers_per_block=3", "model_dims=128", "num_heads=4",
           "vocab_size=2048", "seq_len=128", "latent_dims=32", "rope_dims=32", "num_experts=4",
           "global_batch_size=16", "num_microbatches=1", "data=synthetic"]
F32, BF16 = ["compute_dtype=f32"], ["compute_dtype=bf16"]


def mesh(*shape):
    return [f"ici_mesh_shape=[{','.join(map(str, shape))}]"]


def pipeline(stages, microbatches, circular=1):
    return ["use_pipeline=true", f"num_microbatches={microbatches}",
            f"circular_repeat={circular}"] + mesh(stages, 1, 1, 1)


# Name: experiment, devices, settings.
KNOWN = {
    "gpt2 f32": ("bench.Gpt2Tiny", 1, GPT2 + F32),
    "gpt2 bf16, wide": ("bench.Gpt2Tiny", 1, GPT2 + BF16 + ["model_dims=256", "seq_len=128"]),
    "gpt2 data parallel": ("bench.Gpt2Tiny", 2, GPT2 + F32 + mesh(2, 1, 1)),
    "c4 bf16": ("c4.Spmd1BSmoke", 1, C4 + BF16),
    "c4 f32, no remat": ("c4.Spmd1BSmoke", 1, C4 + F32 + ["remat_policy=save_everything"]),
    "c4 fsdp": ("c4.Spmd1BSmoke", 2, C4 + BF16 + mesh(1, 2, 1)),
    "c4 tensor": ("c4.Spmd1BSmoke", 2, C4 + F32 + mesh(1, 1, 2)),
    "seqax bf16": ("seqax.LocalSynthetic", 1, BF16 + mesh(1, 1, 1)),
    "experts f32": ("jaxformer.Moe", 1, EXPERTS + F32),
    "c4 pipeline": ("c4.Spmd1BSmoke", 2, C4 + BF16 + pipeline(2, 4)),
}
HELD_OUT = {
    "gpt2 f32, long": ("bench.Gpt2Tiny", 1, GPT2 + F32 + ["seq_len=1024", "global_batch_size=2"]),
    "gpt2 f32, wide": ("bench.Gpt2Tiny", 1,
                       GPT2 + F32 + ["model_dims=512", "num_heads=8", "num_layers=2"]),
    "gpt2 tensor": ("bench.Gpt2Tiny", 2, GPT2 + F32 + mesh(1, 1, 2) +
                    ["strategy=tensor", "model_dims=256"]),
    "gpt2 large vocabulary": ("gpt2.Nano", 1, ["vocab_size=16384", "model_dims=128", "seq_len=128",
                                               "global_batch_size=8"] + BF16 + mesh(1, 1, 1)),
    "c4 bf16, gated": ("c4.Spmd1BSmoke", 1, C4 + BF16 + ["use_gated_activation=true",
                                                        "model_dims=192", "norm_kind=rms_norm"]),
    "c4 f32, small batch": ("c4.Spmd1BSmoke", 1, C4 + F32 + ["global_batch_size=4"]),
    "c4 tensor, long": ("c4.Spmd1BSmoke", 2, C4 + BF16 + mesh(1, 1, 2) +
                        ["seq_len=512", "global_batch_size=4"]),
    "seqax f32 data parallel": ("seqax.LocalSynthetic", 2, F32 + mesh(1, 2, 1)),
    "experts bf16, microbatches": ("jaxformer.Moe", 1, EXPERTS + BF16 + ["num_microbatches=2"]),
    "c4 circular pipeline": ("c4.Spmd1BSmoke", 2, C4 + F32 + pipeline(2, 4, 2)),
}


def run(args, configuration, flags):
    experiment, devices, settings = configuration
    command = [f"{args.build}/bin/runexp", f"--exp={experiment}", f"--devices={devices}"]
    command += [f"--set={setting}" for setting in settings] + flags
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{done.stderr[-800:]}")


def measured(args, configuration, folder):
    """Median seconds of a step, of 2 threads in all."""
    run(args, configuration, [f"--job_log_dir={folder}", "--restart", "--threads=2",
                              "--profile=off", f"--set=num_train_steps={args.steps}",
                              "--set=task.train.eval_interval_steps=0"])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    times = [line["step_time"] for line in lines if "step_time" in line]
    return statistics.median(times[WARMUP:])


def predicted(args, configuration, folder):
    hardware = args.one if configuration[1] == 1 else args.two
    run(args, configuration, ["--mode=plan", f"--hardware={hardware}",
                              f"--output={folder / 'plan.json'}"])
    return json.loads((folder / "plan.json").read_text())["prediction"]["step_seconds"]


def summary(name, rows):
    errors = {row: abs(ratio - 1.0) for row, _, _, ratio in rows}
    worst = max(errors, key=errors.get)
    return (f"{name}: median error {100 * statistics.median(errors.values()):.0f} %, worst "
            f"{100 * errors[worst]:.0f} % ({worst})")


def drawing(halves):
    """A dot for each configuration: measured across, predicted up; on the diagonal they agree."""
    times = [1e3 * time for rows in halves.values() for _, *pair, _ in rows for time in pair]
    limits = (min(times) / 1.2, max(times) * 1.2)
    ticks = [tick for tick in (10, 20, 50, 100, 200, 500, 1000, 2000)
             if limits[0] < tick < limits[1]]
    plot = Plot("a step of twenty configurations", "measured, ms", "predicted, ms", limits, limits,
                ticks, ticks, log_x=True, log_y=True, width=560, height=400)
    low, high = limits
    plot.area([(low, low), (1.1 * low, low), (high, high / 1.1), (high, high), (high / 1.1, high),
               (low, 1.1 * low)])
    plot.line([(low, low), (high, high)], INK, width=1)
    for (half, rows), colour in zip(halves.items(), COLOURS):
        for _, real, planned, _ in rows:
            plot.dot(1e3 * real, 1e3 * planned, colour)
    return panels([plot], [(half, colour, False) for half, colour in zip(halves, COLOURS)],
                  "Within 10 % in the grey band.")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", required=True)
    parser.add_argument("--two", required=True)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--only", default="")
    parser.add_argument("--measured", type=pathlib.Path)
    parser.add_argument("--measure_only", action="store_true")
    parser.add_argument("--svg", type=pathlib.Path)
    args = parser.parse_args()
    if args.steps <= WARMUP:
        sys.exit(f"--steps={args.steps}: expected more than {WARMUP}")
    kept = args.measured.exists() if args.measured else False
    times = json.loads(args.measured.read_text()) if kept else {}
    halves = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for half, configurations in (("known", KNOWN), ("held out", HELD_OUT)):
            rows = []
            for name, configuration in configurations.items():
                if args.only and not any(part in name for part in args.only.split(",")):
                    continue
                if name not in times:
                    times[name] = measured(args, configuration, folder / "run")
                    if args.measured:
                        args.measured.write_text(json.dumps(times, indent=1))
                if args.measure_only:
                    print(f"{name}: {1e3 * times[name]:.1f} ms", flush=True)
                    continue
                planned = predicted(args, configuration, folder)
                rows.append((name, times[name], planned, planned / times[name]))
                print(f"| {half} | {name} | {configuration[1]} | {1e3 * times[name]:.1f} ms | "
                      f"{1e3 * planned:.1f} ms | {planned / times[name]:.2f} |", flush=True)
            if rows:
                halves[half] = rows
    for half, rows in halves.items():
        print(summary(half, rows))
    if args.svg and halves:
        args.svg.write_text(drawing(halves))


if __name__ == "__main__":
    main()
