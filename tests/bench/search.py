#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what --search finds with what another build of runexp finds.

    tests/bench/search.py OTHER [--build=build/release] [--seconds=60] [--goal=time]
        [--devices=8,64,512] [--only=gpt2,c4] [--results=FILE.jsonl]

OTHER is the build folder of another commit, such as one whose search differs. Both search for the
recipes below, one at least of each family and kind of strategy, on H100s. Prints a row for each
recipe and number of devices: the score (seconds or bytes) of the best that each found, this one's
part of the other's, and the processor seconds of both; then the largest part. --results keeps
searches: those in the file are not run again. Needs `ninja programs` and all experiments in both.
"""
import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

RECIPES = """
nvidia.Nvidia175B lm_cloud.SpmdPipeline175B nvidia.GrokPP c4.SpmdPipelineGpt3MLPerfBS4k
c4.SpmdGpt3L16 bert.SpmdL66H12kBiggerBatch8x8x8 optimal_scaling.OptimalScaling4x8x16
nvidia.GLaM64B64E nvidia.MoELarge lm_cloud.Spmd128B c4_multislice.Spmd22B2xv4_128
nvidia.MetaLlama3_70B nvidia.MetaLlama3_8B nvidia.Llama2_70B nvidia.CircularRepeat
lm_cloud.SpmdPipelineMultislice2BCircular c4.Spmd1B c4.Spmd jaxformer.Moe1B seqax.A100x8Lm1B
gpt2.Xl lm_cloud.LargeMlp lm_cloud.Transformer bench.Gpt2Small
""".split()


def searched(build, recipe, devices, options):
    """The best score, or None if nothing fits, and processor seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            [build / "bin/runexp", f"--exp={recipe}", "--mode=plan", "--search", "--hardware=h100",
             f"--devices={devices}", f"--goal={options.goal}",
             f"--search_seconds={options.seconds}", f"--job_log_dir={folder}"],
            capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        file = pathlib.Path(folder) / "search.json"
        if not file.exists():
            sys.exit(f"{recipe} on {devices} devices: {result.stderr.strip()}")
        best = json.loads(file.read_text())["best"]
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    member = "bytes" if options.goal == "memory" else "step_seconds"
    return (best[member] if best else None), seconds


def row_text(row):
    def score(value):
        return f"{value:.6g}" if value else "none fits"
    part = f"{row['this'] / row['other']:.4f}" if row["this"] and row["other"] else ""
    return (f"| {row['recipe']} | {row['devices']} | {score(row['other'])} | {score(row['this'])} "
            f"| {part} | {row['other_seconds']:.0f} | {row['this_seconds']:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--goal", default="time", choices=["time", "memory"])
    parser.add_argument("--devices", default="8,64,512")
    parser.add_argument("--only", default="")
    parser.add_argument("--results", type=pathlib.Path)
    options = parser.parse_args()
    known = {}
    if options.results and options.results.exists():
        for line in options.results.read_text().splitlines():
            row = json.loads(line)
            known[row["recipe"], row["devices"], row["goal"]] = row
    rows = []
    print("| recipe | devices | other | this | this / other | CPU s, other | CPU s, this |")
    print("|---|---|---|---|---|---|---|")
    for recipe in RECIPES:
        if not any(part in recipe for part in options.only.split(",")):
            continue
        for devices in map(int, options.devices.split(",")):
            row = known.get((recipe, devices, options.goal))
            if row is None:
                other, other_seconds = searched(options.other, recipe, devices, options)
                this, this_seconds = searched(options.build, recipe, devices, options)
                row = {"recipe": recipe, "devices": devices, "goal": options.goal, "other": other,
                       "this": this, "other_seconds": other_seconds, "this_seconds": this_seconds}
                if options.results:
                    with options.results.open("a") as file:
                        file.write(json.dumps(row) + "\n")
            rows.append(row)
            print(row_text(row), flush=True)
    parts = [row["this"] / row["other"] for row in rows if row["this"] and row["other"]]
    lost = sum(1 for row in rows if row["other"] and not row["this"])
    if parts:
        print(f"\nthe largest part: {max(parts):.4f}; where only the other finds one: {lost}")


if __name__ == "__main__":
    main()
