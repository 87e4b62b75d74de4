#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batches from token files: Tessera's flat tokens compared with nanoGPT's method and with memory
bandwidth.

    tests/bench/flat_tokens.py --python=/path/to/python-with-torch [--build=build/release]
        [--tokens=50000000] [--rounds=3] [--tokenizer=bytes] [--under="chrt -r 1"]

nanoGPT's method is numpy.memmap over a file of 16-bit ids, with rows at random positions, and ids
and labels stacked as 64-bit tensors. It has no other arrays of a batch, no checks and no resumable
order. The programs are interleaved, with one thread each and the files in the page cache. Results
are medians of the rounds. Needs `ninja bench_flat_tokens`. docs/performance.md has the results of
this script.
"""
import argparse
import json
import statistics
import subprocess
import sys

PEER = """
import json, os, sys, tempfile, time
import numpy, torch
torch.set_num_threads(1)
tokens, seq, batch = (int(word) for word in sys.argv[1:])
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "train.bin")
    numpy.random.default_rng(1).integers(0, 50257, tokens, dtype=numpy.uint16).tofile(path)
    def get_batch():
        data = numpy.memmap(path, dtype=numpy.uint16, mode="r")
        ix = torch.randint(len(data) - seq, (batch,))
        x = torch.stack([torch.from_numpy(data[i:i+seq].astype(numpy.int64)) for i in ix])
        y = torch.stack([torch.from_numpy(data[i+1:i+1+seq].astype(numpy.int64)) for i in ix])
        return x, y
    rates = []
    for _ in range(7):
        count = max(1, tokens // (seq * batch))
        begin = time.thread_time()
        for _ in range(count):
            get_batch()
        rates.append(count * seq * batch / (time.thread_time() - begin))
print(json.dumps({"peer": sorted(rates)[3]}))
"""


def measure(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--tokens", type=int, default=50_000_000)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokenizer", default="bytes")
    parser.add_argument("--under", default="")
    args = parser.parse_args()
    rounds = []
    for _ in range(args.rounds):
        ours = measure(args.under.split() + [
            f"{args.build}/bin/bench_flat_tokens", f"--tokens={args.tokens}", f"--seq={args.seq}",
            f"--batch={args.batch}", f"--tokenizer={args.tokenizer}", "--json"])
        peer = measure(args.under.split() + [args.python, "-c", PEER, str(args.tokens),
                                             str(args.seq), str(args.batch)])
        rounds.append({**ours, **peer})
    median = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    print(f"{args.tokens} tokens, rows of {args.seq}, batches of {args.batch}, "
          f"tokenizer {args.tokenizer}; a thread, median of {args.rounds} rounds")
    for name, text in (("first_pass", "Tessera, first pass (checksums checked)"),
                       ("later_passes", "Tessera, later passes"), ("peer", "memmap and torch.stack")):
        print(f"  {text:42s} {median[name] * 1e-6:7.0f} million tokens a second")
    print(f"  memcpy copies {median['memcpy'] * 1e-9:.1f} GB/s")


if __name__ == "__main__":
    main()
