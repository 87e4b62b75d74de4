# SPDX-License-Identifier: Apache-2.0
"""The model of experiments/bench in PyTorch: same weights, batches, optimizer and clipping.

Reads initial weights from a checkpoint's index.h5 and batches from dump_batches' file. Prints one
JSON line per step with its loss and time. It uses PyTorch's fast paths for a fair comparison:
scaled_dot_product_attention, one qkv product, fused AdamW, loss without upcasting copies, and
optionally torch.compile or autocast.
"""
import argparse
import json
import math
import time

import h5py
import numpy
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, dims, heads, gelu):
        super().__init__()
        self.heads, self.gelu = heads, gelu
        self.attention_norm = nn.LayerNorm(dims, bias=False)
        self.qkv = nn.Linear(dims, 3 * dims, bias=False)
        self.output = nn.Linear(dims, dims, bias=False)
        self.ffn_norm = nn.LayerNorm(dims, bias=False)
        self.up = nn.Linear(dims, 4 * dims, bias=False)
        self.down = nn.Linear(4 * dims, dims, bias=False)

    def forward(self, x):
        batch, seq, dims = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).split(dims, dim=2)
        q, k, v = (t.view(batch, seq, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(batch, seq, dims))
        return x + self.down(F.gelu(self.up(self.ffn_norm(x)), approximate=self.gelu))


class Gpt2(nn.Module):
    def __init__(self, layers, dims, heads, vocab, seq, gelu="none"):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dims)
        self.positions = nn.Embedding(seq, dims)
        self.blocks = nn.ModuleList(Block(dims, heads, gelu) for _ in range(layers))
        self.norm = nn.LayerNorm(dims, bias=False)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def load(model, file):
    """Maps the experiment's names to weights; all of them must be used."""
    used = set()
    with h5py.File(file) as h5:
        params = {}
        h5["params"].visititems(
            lambda name, item: params.__setitem__(name, item[:]) if hasattr(item, "shape") else None)

    def find(*parts):
        names = [n for n in params if all(p in n.replace("/", ".") for p in parts)]
        assert len(names) == 1, (parts, names)
        used.add(names[0])
        return torch.from_numpy(numpy.ascontiguousarray(params[names[0]]))

    dims = model.tokens.weight.shape[1]
    with torch.no_grad():
        model.tokens.weight.copy_(find("softmax.w"))
        model.positions.weight.copy_(find("position_emb"))
        for i, block in enumerate(model.blocks):
            at = f"x_layers[{i}]."
            parts = [find(at, f"attention.{n}").reshape(dims, dims).T for n in ("query", "key", "value")]
            block.qkv.weight.copy_(torch.cat(parts))
            block.output.weight.copy_(find(at, "attention.output").reshape(dims, dims).T)
            block.up.weight.copy_(find(at, "ffn.up").T)
            block.down.weight.copy_(find(at, "ffn.down").T)
            for name, norm in (("attention_norm", block.attention_norm), ("ffn_norm", block.ffn_norm)):
                find(at, name)  # Stored as scale - 1, zero at the start: a scale of 1.
    find("final_ln")
    assert used == set(params), sorted(set(params) - used)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", required=True)
    parser.add_argument("--batches", required=True)
    for name in ("layers", "dims", "heads", "vocab", "seq", "batch", "steps", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--learning_rate", type=float, default=6e-4)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)

    model = Gpt2(args.layers, args.dims, args.heads, args.vocab, args.seq)
    load(model, args.weights)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=args.learning_rate, betas=(0.9, 0.95), eps=1e-8, fused=True)
    batches = torch.from_numpy(numpy.fromfile(args.batches, dtype=numpy.int32).astype(numpy.int64))
    batches = batches.view(-1, 2, args.batch, args.seq)
    forward = torch.compile(model) if args.compile else model

    for step in range(args.steps):
        ids, labels = batches[step % len(batches)]
        begin, cpu = time.perf_counter(), time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
            loss = forward(ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        assert math.isfinite(value)
        print(json.dumps({"step": step, "loss": value, "seconds": time.perf_counter() - begin,
                          "cpu_seconds": time.process_time() - cpu}), flush=True)


if __name__ == "__main__":
    main()
