# SPDX-License-Identifier: Apache-2.0
"""The model of experiments/bench decoding in PyTorch: a static cache written by index,
scaled_dot_product_attention over its filled part, one qkv product, inference mode.

Loads the weights that decode_bench wrote, decodes the same tokens, and prints one JSON line with
the times and the largest difference of the last logits.
"""
import argparse
import json
import pathlib
import time

import numpy
import torch
import torch.nn.functional as F


class Decoder:
    def __init__(self, folder, args, dtype):
        names = (folder / "parameters.txt").read_text().split()
        dims, self.heads, self.layers = args.dims, args.heads, args.layers

        def weight(path, *shape):
            data = numpy.fromfile(folder / f"{names.index(path)}.bin", dtype=numpy.float32)
            return torch.from_numpy(data).reshape(shape).to(dtype)

        self.tokens = weight("lm.softmax.w", args.vocab, dims)
        self.positions = weight("lm.position_emb.w", -1, dims)
        self.blocks = []
        for i in range(self.layers):
            at = f"lm.transformer.x_layers[{i}]."
            qkv = torch.cat([weight(at + f"attention.{n}", dims, dims).T for n in ("query", "key", "value")])
            self.blocks.append((
                weight(at + "attention_norm.scale", dims), qkv.contiguous(),
                weight(at + "attention.output", dims, dims).T.contiguous(),
                weight(at + "ffn_norm.scale", dims),
                weight(at + "ffn.up", dims, 4 * dims).T.contiguous(),
                weight(at + "ffn.down", 4 * dims, dims).T.contiguous()))
        self.norm = weight("lm.final_ln.scale", dims)
        length = args.prompt + args.new
        cache = (self.layers, args.batch, self.heads, length, dims // self.heads)
        self.keys, self.values = torch.zeros(cache, dtype=dtype), torch.zeros(cache, dtype=dtype)
        self.dims = dims

    def __call__(self, ids, position):
        batch, seq = ids.shape
        end = position + seq
        x = self.tokens[ids] + self.positions[position:end]
        for i, (norm1, qkv, output, norm2, up, down) in enumerate(self.blocks):
            h = F.layer_norm(x, (self.dims,), norm1, None, 1e-5)
            q, k, v = F.linear(h, qkv).view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            self.keys[i, :, :, position:end] = k
            self.values[i, :, :, position:end] = v
            y = F.scaled_dot_product_attention(q, self.keys[i, :, :, :end], self.values[i, :, :, :end],
                                               is_causal=seq > 1)
            x = x + F.linear(y.transpose(1, 2).reshape(batch, seq, self.dims), output)
            h = F.layer_norm(x, (self.dims,), norm2, None, 1e-5)
            x = x + F.linear(F.gelu(F.linear(h, up)), down)
        h = F.layer_norm(x[:, -1], (self.dims,), self.norm, None, 1e-5)
        return F.linear(h, self.tokens).float()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    for name in ("layers", "dims", "heads", "vocab", "batch", "prompt", "new", "threads"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--dtype", choices=("f32", "bf16"), required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    rows = 31 * torch.arange(args.batch)[:, None]

    def tokens(position, count):
        return (7919 * torch.arange(position, position + count) + rows) % args.vocab

    with torch.inference_mode():
        model = Decoder(args.folder, args, dtype)
        model(tokens(0, args.prompt), 0)
        begin = time.perf_counter()
        model(tokens(0, args.prompt), 0)
        prompt = 1000 * (time.perf_counter() - begin)
        times = []
        for position in range(args.prompt, args.prompt + args.new):
            begin = time.perf_counter()
            logits = model(tokens(position, 1), position)
            times.append(1000 * (time.perf_counter() - begin))
    ours = torch.from_numpy(numpy.fromfile(args.folder / "logits.bin", dtype=numpy.float32))
    difference = (logits.flatten() - ours).abs().max().item()
    print(json.dumps({"prompt_ms": prompt, "token_ms": times, "difference": difference,
                      "largest": logits.abs().max().item()}))


if __name__ == "__main__":
    main()
