#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of GPT-2 by PyTorch on one GPU, for comparison with `gpu_check --filter='^5'`.

    tests/bench/torch_gpu.py [--models=124M,350M,1558M] [--steps=16]

The models, batches and dtypes are those of gpu_check's presets: bf16 compute (autocast) with f32
weights, AdamW (fused), clipping by the global norm, the loss of all tokens, random ids. The step is
compiled by torch.compile; attention is PyTorch's choice (FlashAttention or cuDNN). Prints, for each
model, the median time of the steps after the first five and the tokens per second.
"""
import argparse
import statistics
import time

import torch
from torch import nn

from torch_gpt2 import Gpt2

MODELS = {
    "124M": dict(layers=12, dims=768, heads=12, seq=1024, batch=64),
    "350M": dict(layers=24, dims=1024, heads=16, seq=2048, batch=16),
    "1558M": dict(layers=48, dims=1600, heads=25, seq=1024, batch=16),
}
VOCABULARY = 50304
WARMUP = 5


def step_times(model, batch, length, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    compiled = torch.compile(model)
    ids = torch.randint(0, VOCABULARY, (batch, length + 1), device="cuda")
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return times[WARMUP:]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--steps", type=int, default=16)
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    for name in args.models.split(","):
        shape = dict(MODELS[name])
        batch = shape.pop("batch")
        seconds = None
        while seconds is None:
            try:
                model = Gpt2(vocab=VOCABULARY, gelu="tanh", **shape).cuda()
                seconds = statistics.median(step_times(model, batch, shape["seq"], args.steps))
            except torch.OutOfMemoryError:
                if batch == 1:
                    raise
                batch //= 2
            finally:
                model = None
                torch.cuda.empty_cache()
        print(f"{name}: batch {batch}, {1e3 * seconds:.1f} ms, "
              f"{batch * shape['seq'] / seconds / 1e3:.1f}k tokens/s", flush=True)


if __name__ == "__main__":
    main()
