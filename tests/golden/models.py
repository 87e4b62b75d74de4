# SPDX-License-Identifier: Apache-2.0
"""Three small language models in plain PyTorch, written from the papers and independently of
Tessera: the references of tests/layers/goldens_test.cc. `python3 tests/golden/models.py` rewrites
gpt2.txt, llama.txt and pax.txt beside it: the loss and every gradient, computed in float64.

Weights and batches come from integer formulas that the C++ test also implements.
"""
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

VOCAB, EMBED, HEADS, LAYERS, SEQ, BATCH = 37, 16, 4, 2, 12, 2


def name_hash(name):
    """FNV-1a, 32 bits."""
    value = 0x811C9DC5
    for byte in name.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def noise(name, count):
    """Numbers in [-1, 1), multiples of 2^-15, a function of (name, index) only."""
    x = (np.arange(count, dtype=np.uint64) * 2654435761 + name_hash(name)) & 0xFFFFFFFF
    for shift, multiplier in ((16, 0x45D9F3B), (16, 0x45D9F3B)):
        x = ((x ^ (x >> shift)) * multiplier) & 0xFFFFFFFF
    x ^= x >> 16
    return (x >> 16).astype(np.float64) / 32768.0 - 1.0


class Weights:
    """Makes weights on demand: scales and biases near `centre`, and matrices of moderate size."""

    def __init__(self):
        self.table = {}

    def __call__(self, name, *shape, centre=0.0):
        amplitude = 0.25 if len(shape) == 1 else 1.5 / math.sqrt(EMBED)
        values = centre + amplitude * noise(name, math.prod(shape))
        tensor = torch.tensor(values.reshape(shape), dtype=torch.float64, requires_grad=True)
        self.table[name] = tensor
        return tensor


def token_batch():
    """ids and labels (BATCH, SEQ), each row two packed documents and, in row 1, padding."""
    ids = ((noise("ids", BATCH * SEQ) + 1.0) * 0.5 * VOCAB).astype(np.int64).reshape(BATCH, SEQ)
    labels = ((noise("labels", BATCH * SEQ) + 1.0) * 0.5 * VOCAB).astype(np.int64)
    segment_ids = np.array([[1] * 5 + [2] * 7, [1] * 3 + [2] * 6 + [0] * 3])
    segment_pos = np.array([[*range(5), *range(7)], [*range(3), *range(6), *range(3)]])
    return {
        "ids": torch.tensor(ids),
        "labels": torch.tensor(labels.reshape(BATCH, SEQ)),
        "segment_ids": torch.tensor(segment_ids),
        "segment_pos": torch.tensor(segment_pos),
        "weights": torch.tensor((segment_ids > 0).astype(np.float64)),
    }


def attend(q, k, v, mask, scale, cap=0.0):
    """q (B,T,N,H), k and v (B,T,K,H); mask (B,T,T), true where a query may look."""
    group = q.shape[2] // k.shape[2]
    k, v = (t.repeat_interleave(group, dim=2) for t in (k, v))
    scores = torch.einsum("btnh,bsnh->bnts", q, k) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    scores = scores.masked_fill(~mask[:, None], float("-inf"))
    return torch.einsum("bnts,bsnh->btnh", torch.softmax(scores, dim=-1), v)


def causal(batch):
    return torch.ones(SEQ, SEQ, dtype=torch.bool).tril().expand(BATCH, SEQ, SEQ)


def causal_in_segment(batch):
    segments = batch["segment_ids"]
    return causal(batch) & (segments[:, :, None] == segments[:, None, :])


def weighted_loss(per_token, weights):
    return (per_token * weights).sum() / weights.sum()


def gpt2(batch, w):
    """Radford et al., 2019: pre-norm, learned positions, GELU(tanh), biases, tied embeddings."""
    head = EMBED // HEADS
    table = w("lm.softmax.w", VOCAB, EMBED)
    x = F.embedding(batch["ids"], table) + w("lm.position_emb.w", SEQ, EMBED)

    def norm(x, name):
        return F.layer_norm(x, (EMBED,), w(f"{name}.scale", EMBED, centre=1.0),
                            w(f"{name}.bias", EMBED), 1e-5)

    for i in range(LAYERS):
        block = f"lm.transformer.x_layers[{i}]"
        h = norm(x, f"{block}.attention_norm")
        q, k, v = (
            torch.einsum("btd,dnh->btnh", h, w(f"{block}.attention.{part}", EMBED, HEADS, head))
            + w(f"{block}.attention.{part}_bias", HEADS, head) for part in ("query", "key", "value"))
        context = attend(q, k, v, causal(batch), 1 / math.sqrt(head))
        x = x + torch.einsum("btnh,nhd->btd", context,
                             w(f"{block}.attention.output", HEADS, head, EMBED))
        x = x + w(f"{block}.attention.output_bias", EMBED)
        h = norm(x, f"{block}.ffn_norm")
        h = h @ w(f"{block}.ffn.up", EMBED, 4 * EMBED) + w(f"{block}.ffn.up_bias", 4 * EMBED)
        h = F.gelu(h, approximate="tanh")
        x = x + h @ w(f"{block}.ffn.down", 4 * EMBED, EMBED) + w(f"{block}.ffn.down_bias", EMBED)
    logits = norm(x, "lm.final_ln") @ table.T
    losses = F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none")
    return weighted_loss(losses, torch.ones_like(losses))


def rotate(x, positions, base=10000.0):
    """Su et al., 2021, pairs (i, i + H/2)."""
    half = x.shape[-1] // 2
    frequency = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = positions[..., None].double() * frequency
    cos, sin = angle.cos()[:, :, None], angle.sin()[:, :, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def llama(batch, w):
    """Touvron et al., 2023: RMSNorm, rotary, SwiGLU, grouped queries, untied; packed documents."""
    head, kv_heads, hidden = 8, 2, 40

    def norm(x, name):
        scale = w(f"{name}.scale", EMBED, centre=1.0)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * scale

    x = F.embedding(batch["ids"], w("lm.embedding.w", VOCAB, EMBED))
    for i in range(LAYERS):
        block = f"lm.transformer.x_layers[{i}]"
        h = norm(x, f"{block}.attention_norm")
        q, k, v = (
            torch.einsum("btd,dnh->btnh", h, w(f"{block}.attention.{part}", EMBED, heads, head))
            for part, heads in (("query", HEADS), ("key", kv_heads), ("value", kv_heads)))
        q, k = (rotate(t, batch["segment_pos"]) for t in (q, k))
        context = attend(q, k, v, causal_in_segment(batch), 1 / math.sqrt(head))
        x = x + torch.einsum("btnh,nhd->btd", context,
                             w(f"{block}.attention.output", HEADS, head, EMBED))
        h = norm(x, f"{block}.ffn_norm")
        gate = F.silu(h @ w(f"{block}.ffn.gate", EMBED, hidden))
        x = x + (gate * (h @ w(f"{block}.ffn.up", EMBED, hidden))) @ w(f"{block}.ffn.down", hidden,
                                                                      EMBED)
    logits = norm(x, "lm.final_ln") @ w("lm.softmax.w", EMBED, VOCAB)
    losses = F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none")
    return weighted_loss(losses, batch["weights"])


def sinusoids(positions):
    """Sines then cosines; timescales 1 … 10000 in geometric progression, both ends included."""
    half = EMBED // 2
    frequency = torch.exp(-math.log(10000.0) / (half - 1) * torch.arange(half).double())
    angle = positions[..., None].double() * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def pax(batch, w):
    """Pax's c4 recipe: sinusoids, LayerNorm as 1+scale, combined QKV, per-dim query scale, caps on
    attention (50) and softmax (30), embedding times √D, biases in FFN and softmax; with label
    smoothing and z-loss."""
    head = EMBED // HEADS
    table = w("lm.softmax.w", VOCAB, EMBED)
    x = F.embedding(batch["ids"], table) * math.sqrt(EMBED) + sinusoids(batch["segment_pos"])

    def norm(x, name):
        return F.layer_norm(x, (EMBED,), 1.0 + w(f"{name}.scale", EMBED), w(f"{name}.bias", EMBED),
                            1e-6)

    for i in range(LAYERS):
        block = f"lm.transformer.x_layers[{i}]"
        h = norm(x, f"{block}.attention_norm")
        qkv = torch.einsum("btd,dpnh->pbtnh", h, w(f"{block}.attention.qkv", EMBED, 3, HEADS, head))
        factor = F.softplus(w(f"{block}.attention.per_dim_scale", head)) / math.log(2.0)
        context = attend(qkv[0] * factor / math.sqrt(head), qkv[1], qkv[2],
                         causal_in_segment(batch), 1.0, cap=50.0)
        x = x + torch.einsum("btnh,nhd->btd", context,
                             w(f"{block}.attention.output", HEADS, head, EMBED))
        h = norm(x, f"{block}.ffn_norm")
        h = F.relu(h @ w(f"{block}.ffn.up", EMBED, 4 * EMBED) + w(f"{block}.ffn.up_bias", 4 * EMBED))
        x = x + h @ w(f"{block}.ffn.down", 4 * EMBED, EMBED) + w(f"{block}.ffn.down_bias", EMBED)
    logits = norm(x, "lm.final_ln") @ table.T + w("lm.softmax.b", VOCAB)
    logits = 30.0 * torch.tanh(logits / 30.0)
    losses = F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none",
                             label_smoothing=0.1)
    losses = losses + 1e-2 * torch.logsumexp(logits, dim=-1).square()
    return weighted_loss(losses, batch["weights"])


def write_golden(model):
    weights = Weights()
    loss = model(token_batch(), weights)
    loss.backward()
    lines = [f"# {model.__name__}: loss and gradients by tests/golden/models.py in float64",
             f"loss {loss.item():.15g}"]
    for name, tensor in weights.table.items():
        lines.append(f"gradient {name} {tensor.numel()}")
        values = [f"{value:.7g}" for value in tensor.grad.flatten().tolist()]
        lines += [" ".join(values[i:i + 8]) for i in range(0, len(values), 8)]
    path = pathlib.Path(__file__).parent / f"{model.__name__}.txt"
    path.write_text("\n".join(lines) + "\n")
    print(f"{path}: loss {loss.item():.6f}, {len(weights.table)} gradients")


if __name__ == "__main__":
    for each in (gpt2, llama, pax):
        write_golden(each)
