#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of Tessera compared with PyTorch: same model, weights, batches and threads.

    tests/bench/compare.py --python=/path/to/python-with-torch-and-h5py [--build=build/release]
        [--models=tiny,small,base] [--dtypes=f32,bf16] [--threads=2] [--steps=20] [--rounds=3]
        [--under="chrt -r 1"]

Runs of the programs are interleaved, so that other load affects all of them equally. A step's time
is the median over all rounds without each run's first steps. Losses of the first steps are compared
with PyTorch's. `--under` is a command that starts each run, such as chrt on a shared machine. Needs
`ninja runexp experiment_bench dump_batches`. PyTorch's allocator is tuned as described in
docs/performance.md, which has the results of this script.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MODELS = {
    "tiny": dict(exp="bench.Gpt2Tiny", layers=4, dims=128, heads=4, vocab=264, seq=256, batch=32),
    "small": dict(exp="bench.Gpt2Small", layers=6, dims=384, heads=6, vocab=8192, seq=256, batch=16),
    "base": dict(exp="bench.Gpt2Base", layers=12, dims=768, heads=12, vocab=50304, seq=256, batch=4),
}
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "20000000000",
          "MALLOC_TOP_PAD_": "268435456"}
WARMUP = 2


def lines_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def runexp(args, model, folder, *settings):
    shutil.rmtree(folder, ignore_errors=True)
    command = args.under.split() + [f"{args.build}/bin/runexp", f"--exp={MODELS[model]['exp']}",
                                    f"--job_log_dir={folder}", f"--threads={args.threads}"]
    command += [f"--set={setting}" for setting in settings]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lines = lines_of((folder / "metrics.jsonl").read_text())
    return [line for line in lines if "loss" in line]


def prepare(args, model, folder):
    """Initial weights, as the checkpoint of a step that changes nothing, and the batches."""
    runexp(args, model, folder / "init", "num_train_steps=1", "learning_rate=0",
           "task.train.save_interval_steps=1")
    (index,) = (folder / "init" / "checkpoints").glob("step_*/index.h5")
    batches = folder / "batches.bin"
    subprocess.run([f"{args.build}/bin/dump_batches", MODELS[model]["exp"], str(args.steps),
                    str(batches)], check=True)
    return index, batches


def ours(args, model, dtype, folder, index, batches):
    lines = runexp(args, model, folder / f"ours_{dtype}", f"num_train_steps={args.steps}",
                      f"compute_dtype={dtype}")
    return [line["loss"] for line in lines], [line["step_time"] for line in lines]


def torch(compiled):
    def run(args, model, dtype, folder, index, batches):
        spec = MODELS[model]
        command = args.under.split() + [args.python, str(HERE / "torch_gpt2.py"), f"--weights={index}",
                   f"--batches={batches}", f"--steps={args.steps}", f"--threads={args.threads}"]
        command += [f"--{k}={v}" for k, v in spec.items() if k != "exp"]
        command += ["--bf16"] * (dtype == "bf16") + ["--compile"] * compiled
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                             env={**os.environ, **MALLOC}).stdout
        lines = lines_of(out)
        return [line["loss"] for line in lines], [line["seconds"] for line in lines]
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--build", default=str(HERE.parent.parent / "build" / "release"))
    parser.add_argument("--models", default="tiny,small,base")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--under", default="")
    parser.add_argument("--no_compile", action="store_true")
    args = parser.parse_args()

    contenders = {"tessera": ours, "eager": torch(False)}
    if not args.no_compile:
        contenders["compile"] = torch(True)
    print("| model | dtype | " + " | ".join(f"{name} ms" for name in contenders) +
          " | speed-up | largest loss difference |")
    print("|---" * (len(contenders) + 4) + "|")
    for model in args.models.split(","):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            index, batches = prepare(args, model, folder)
            for dtype in args.dtypes.split(","):
                times = {name: [] for name in contenders}
                losses = {}
                for _ in range(args.rounds):
                    for contender, run in contenders.items():
                        losses[contender], seconds = run(args, model, dtype, folder, index, batches)
                        times[contender] += seconds[WARMUP:]
                medians = {c: statistics.median(t) for c, t in times.items()}
                best = min(medians[c] for c in contenders if c != "tessera")
                gap = max(abs(a - b) for a, b in zip(losses["tessera"], losses["eager"]))
                print(f"| {model} | {dtype} | " +
                      " | ".join(f"{1000 * medians[c]:.1f}" for c in contenders) +
                      f" | {best / medians['tessera']:.2f} | {gap:.2e} |", flush=True)


if __name__ == "__main__":
    main()
