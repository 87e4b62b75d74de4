#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of seqax.LocalSynthetic compared with seqax on JAX: same model, mesh and cores.

    tests/bench/seqax_jax.py --python=/path/to/python-with-jax --seqax=/path/to/seqax-checkout
        [--build=build/release] [--meshes=4x2,1x1] [--threads=2] [--steps=8] [--rounds=3]
        [--under="chrt -r 1"]

seqax runs its local_test_synthetic.yaml: 2.4 million weights, 64 rows of 64 tokens per step, bf16,
on a mesh of 4×2 devices that JAX simulates on the processor, and on one device. Tessera uses the
same number of CPU devices. Both may use only the first --threads cores. Both draw batches from the
same synthetic tasks; seqax loads them before the measurement starts, Tessera during it. Runs are
interleaved, so that other load affects both equally. A step's time is the median over all rounds
without each run's first steps and without compilation. The two models must have the same numbers of
weights and of tokens per step, and about the same first loss.

Needs `ninja runexp experiment_seqax`, a checkout of https://github.com/MatX-inc/seqax, and a Python
with jax==0.4.26 jaxlib==0.4.26 'numpy<2' 'scipy<1.13' zarr==2.17 'numcodecs<0.14' typeguard==4.1.5
einops hydra-core fsspec. docs/performance.md has the results.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WARMUP = 2
LOSS_TOLERANCE = 0.5  # For losses of about 7.7: weights and batches are other random draws.


def run(args, command):
    cores = sorted(os.sched_getaffinity(0))[:args.threads]
    result = subprocess.run(args.under.split() + command, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                            preexec_fn=lambda: os.sched_setaffinity(0, cores))
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{result.stderr[-4000:]}")
    return result.stdout


def seqax(args, mesh, folder):
    out = run(args, [args.python, str(HERE / "seqax_step.py"), f"--seqax={args.seqax}",
                     f"--mesh={mesh[0]},{mesh[1]}", f"--steps={args.steps + WARMUP}"])
    start, *steps = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return dict(weights=start["weights"], tokens=start["tokens"], loss=steps[0]["loss"],
                seconds=[step["seconds"] for step in steps[WARMUP:]])


def ours(args, mesh, folder):
    directory = folder / "ours"
    shutil.rmtree(directory, ignore_errors=True)
    run(args, [f"{args.build}/bin/runexp", "--exp=seqax.LocalSynthetic",
               f"--job_log_dir={directory}", f"--devices={mesh[0] * mesh[1]}",
               f"--threads={args.threads}", f"--set=ici_mesh_shape=[1,{mesh[0]},{mesh[1]}]",
               f"--set=num_train_steps={args.steps + WARMUP}",
               "--set=task.train.save_interval_steps=0"])
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    plan = json.loads((directory / "plan.json").read_text())
    return dict(weights=plan["parameters"], tokens=steps[0]["tokens"], loss=steps[0]["loss"],
                seconds=[step["step_time"] for step in steps[WARMUP:]])


def check_alike(theirs, mine):
    for what in "weights", "tokens":
        if theirs[what] != mine[what]:
            sys.exit(f"{what}: seqax has {theirs[what]}, ours {mine[what]}; not the same model")
    if not math.isclose(theirs["loss"], mine["loss"], abs_tol=LOSS_TOLERANCE):
        sys.exit(f"first losses: seqax's {theirs['loss']}, ours {mine['loss']}; expected to agree "
                 f"within {LOSS_TOLERANCE}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--seqax", type=pathlib.Path, required=True)
    parser.add_argument("--build", default=str(HERE.parent.parent / "build" / "release"))
    parser.add_argument("--meshes", default="4x2,1x1")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--under", default="")
    args = parser.parse_args()

    print("| mesh | seqax on JAX, tokens/s | Tessera, tokens/s | ratio | first losses |")
    print("|---" * 5 + "|")
    for name in args.meshes.split(","):
        mesh = [int(size) for size in name.split("x")]
        results = {seqax: [], ours: []}
        with tempfile.TemporaryDirectory() as temporary:
            for _ in range(args.rounds):
                for contender in results:
                    results[contender].append(contender(args, mesh, pathlib.Path(temporary)))
                check_alike(results[seqax][-1], results[ours][-1])
        rates = {contender: runs[0]["tokens"] /
                 statistics.median(second for each in runs for second in each["seconds"])
                 for contender, runs in results.items()}
        print(f"| {name} | {rates[seqax]:.0f} | {rates[ours]:.0f} | "
              f"{rates[ours] / rates[seqax]:.2f} | {results[seqax][0]['loss']:.3f}, "
              f"{results[ours][0]['loss']:.3f} |", flush=True)


if __name__ == "__main__":
    main()
