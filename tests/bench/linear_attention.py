#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of linear_recurrence on CPUs beside transformers' own Gated DeltaNet in PyTorch, the form in
chunks, at the size of bench_kernels (batch 1, 2048 tokens, 8 heads of 128 by 128, f32).

  linear_attention.py BENCH_KERNELS [--threads=1] [--rounds=3]

BENCH_KERNELS is the program (ninja bench_kernels). Rounds are interleaved; prints the medians in ms.
Needs torch and transformers.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != HERE]  # It has a tokenizers.py.

import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule


def theirs():
    """Milliseconds of a forward pass, and of the backward pass."""
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn((1, 2048, 8, 128), generator=generator).requires_grad_()
                         for _ in range(3))
    decay = (-torch.rand((1, 2048, 8), generator=generator)).requires_grad_()
    beta = torch.rand((1, 2048, 8), generator=generator).requires_grad_()
    begun = time.perf_counter()
    out, _ = torch_chunk_gated_delta_rule(query, key, value, g=decay, beta=beta,
                                          use_qk_l2norm_in_kernel=True)
    middle = time.perf_counter()
    out.sum().backward()
    return 1e3 * (middle - begun), 1e3 * (time.perf_counter() - middle)


def ours(program, threads):
    lines = subprocess.check_output([program, "--json", f"--threads={threads}",
                                     "linear_recurrence/f32"], text=True).splitlines()
    return tuple(json.loads(line)["ms"] for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    theirs()
    rounds = [(ours(arguments.program, arguments.threads), theirs())
              for _ in range(arguments.rounds)]
    for index, name in enumerate(("forward", "backward")):
        mine, peer = (statistics.median(each[side][index] for each in rounds) for side in (0, 1))
        print(f"{name:<9} {mine:8.1f} ms   PyTorch {peer:8.1f} ms   {peer / mine:.1f} times")


if __name__ == "__main__":
    main()
