#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decoding with a KV cache, Tessera compared with PyTorch: same weights, tokens, threads.

    tests/bench/decode.py --python=/path/to/python-with-torch [--build=build/release]
        [--batches=1,16] [--dtypes=f32,bf16] [--prompt=128] [--new=128] [--threads=2] [--rounds=3]
        [--under="chrt -r 1"]

GPT-2 124M (experiments/bench). Runs of both are interleaved; the time of a token is the median over
all rounds. Needs `ninja decode_bench experiment_bench`. PyTorch's allocator is tuned as described
in docs/performance.md, which has the results of this script.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from compare import HERE, MALLOC

SPEC = dict(layers=12, dims=768, heads=12, vocab=50304)


def run(command, **environment):
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                         env={**os.environ, **environment}).stdout
    return json.loads(out.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--build", default=str(HERE.parent.parent / "build" / "release"))
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--under", default="")
    args = parser.parse_args()

    print("| batch | dtype | Tessera ms a token | PyTorch ms a token | speed-up | prompt: Tessera ms "
          "| PyTorch ms | largest difference of logits |")
    print("|---" * 8 + "|")
    for dtype in args.dtypes.split(","):
        for batch in args.batches.split(","):
            with tempfile.TemporaryDirectory() as name:
                folder = pathlib.Path(name)
                sizes = [batch, str(args.prompt), str(args.new), str(args.threads)]
                ours = args.under.split() + [f"{args.build}/bin/decode_bench", "bench.Gpt2Base", *sizes]
                settings = [f"seq_len={args.prompt + args.new}", f"compute_dtype={dtype}"]
                peer = args.under.split() + [args.python, str(HERE / "torch_decode.py"),
                                             f"--folder={folder}", f"--dtype={dtype}",
                                             f"--batch={batch}",
                                             f"--prompt={args.prompt}", f"--new={args.new}",
                                             f"--threads={args.threads}"]
                peer += [f"--{key}={value}" for key, value in SPEC.items()]
                times = {"ours": [], "peer": []}
                prompts = {"ours": [], "peer": []}
                for _ in range(args.rounds):
                    for who, result in (("ours", run([*ours, str(folder), *settings])),
                                        ("peer", run(peer, **MALLOC))):
                        times[who] += result["token_ms"][2:]
                        prompts[who].append(result["prompt_ms"])
                mine, other = (statistics.median(times[who]) for who in ("ours", "peer"))
                print(f"| {batch} | {dtype} | {mine:.2f} | {other:.2f} | {other / mine:.2f} | "
                      f"{min(prompts['ours']):.1f} | {min(prompts['peer']):.1f} | "
                      f"{result['difference']:.1e} of {result['largest']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
