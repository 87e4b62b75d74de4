#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Planned memory of a device for ten recipes, what it is made of, and a bound from below.

    tests/bench/memory.py [--runexp=build/release/bin/runexp] [--before=OTHER/bin/runexp] [--jobs=2]

Prints the table of docs/performance.md. The bound is what no order of launches avoids with the
recipe's mesh, schedule and remat policy: weights, optimizer state and batch, and the gradients of
all weights (which are clipped by their global norm) or all that the forward pass saves, whichever
is more; both with microbatches, of which the first stage of a pipeline saves as many as its
schedule holds. --before is the runexp of another commit, whose peaks are a column.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from planned import TREE
from printed import table

GIB = 2.0**30
CLASSES = ("parameters", "optimizer_state", "gradients", "activations", "temporaries")
RECIPES = """
c4.Spmd1B c4.Spmd16B c4.SpmdGpt3L16 c4.SpmdPipelineGpt3MLPerfBS4k lm_cloud.Spmd128B
nvidia.GLaM64B64E nvidia.GrokPP nvidia.Llama2_70B gpt2.Xl seqax.A100x8Lm2B
""".split()


def planned(runexp, recipe):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "plan.json"
        run(runexp, f"--exp={recipe}", "--mode=plan", f"--output={file}")
        return json.loads(file.read_text())


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stderr}")
    return result.stdout


def microbatches(runexp, recipe):
    described = run(runexp, f"--exp={recipe}", "--describe")
    return int(re.search(r"task\.train\.num_microbatches += (\d+)", described)[1])


def least_bytes(plan, num_microbatches):
    memory = plan["memory_per_device"]
    kept = memory["parameters"] + memory["optimizer_state"] + memory["batch"]
    gradients, saved = memory["parameters"], sum(plan["saved_for_backward"].values())
    if "pipeline" in plan:
        pipeline = plan["pipeline"]
        held = max(pipeline["activations_held"]) / (pipeline["stages"] * pipeline["chunks"])
        return kept + gradients + held * saved
    return kept + (gradients + saved if num_microbatches > 1 else max(gradients, saved))


def cells(recipe, plan, num_microbatches, before):
    def gib(count):
        return f"{count / GIB:.2f}"
    least = least_bytes(plan, num_microbatches)
    return [f"`{recipe}`", str(plan["devices"]), *([gib(before["peak_bytes"])] if before else []),
            gib(plan["peak_bytes"]), *map(gib, (plan["memory_per_device"][name] for name in CLASSES)),
            gib(least), f"{plan['peak_bytes'] / least:.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runexp", default=TREE / "build/release/bin/runexp", type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--jobs", default=2, type=int)
    args = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        plans = pool.map(lambda recipe: planned(args.runexp, recipe), RECIPES)
        before = (list(pool.map(lambda recipe: planned(args.before, recipe), RECIPES))
                  if args.before else [None] * len(RECIPES))
        lines = [cells(recipe, plan, microbatches(args.runexp, recipe), other)
                 for recipe, plan, other in zip(RECIPES, plans, before)]
    titles = ["recipe", "devices", *(["before"] if args.before else []), "peak", "weights",
              "optimizer", "gradients", "activations", "rest", "bound", "peak / bound"]
    print(table(titles, "l" + "r" * (len(titles) - 1), lines))


if __name__ == "__main__":
    main()
