# SPDX-License-Identifier: Apache-2.0
"""Four small language models in plain PyTorch, written from the papers and independently of
Tessera: the references of tests/layers/goldens_test.cc. `python3 tests/golden/models.py` rewrites
gpt2.txt, llama.txt, pax.txt and mtp.txt beside it: the loss and every gradient, computed in float64.

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


def rms_norm(x, w, name):
    scale = w(f"{name}.scale", x.shape[-1], centre=1.0)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * scale


def llama_block(x, batch, w, block, head, hidden, kv_heads=2):
    embed = x.shape[-1]
    h = rms_norm(x, w, f"{block}.attention_norm")
    q, k, v = (
        torch.einsum("btd,dnh->btnh", h, w(f"{block}.attention.{part}", embed, heads, head))
        for part, heads in (("query", HEADS), ("key", kv_heads), ("value", kv_heads)))
    q, k = (rotate(t, batch["segment_pos"]) for t in (q, k))
    context = attend(q, k, v, causal_in_segment(batch), 1 / math.sqrt(head))
    x = x + torch.einsum("btnh,nhd->btd", context,
                         w(f"{block}.attention.output", HEADS, head, embed))
    h = rms_norm(x, w, f"{block}.ffn_norm")
    gate = F.silu(h @ w(f"{block}.ffn.gate", embed, hidden))
    return x + (gate * (h @ w(f"{block}.ffn.up", embed, hidden))) @ w(f"{block}.ffn.down", hidden,
                                                                     embed)


def llama(batch, w):
    """Touvron et al., 2023: RMSNorm, rotary, SwiGLU, grouped queries, untied; packed documents."""
    x = F.embedding(batch["ids"], w("lm.embedding.w", VOCAB, EMBED))
    for i in range(LAYERS):
        x = llama_block(x, batch, w, f"lm.transformer.x_layers[{i}]", head=8, hidden=40)
    logits = rms_norm(x, w, "lm.final_ln") @ w("lm.softmax.w", EMBED, VOCAB)
    losses = F.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none")
    return weighted_loss(losses, batch["weights"])


def mtp(batch, w):
    """Llama's block with two further tokens as in DeepSeek-V3, section 2.2, position by position."""
    embed, depth, loss_weight = 8, 2, 0.3
    labels, weights, segments = batch["labels"], batch["weights"], batch["segment_ids"]
    table = w("lm.embedding.w", VOCAB, embed)
    x = llama_block(F.embedding(batch["ids"], table), batch, w, "lm.transformer.x_layers[0]", 2, 8)
    output = w("lm.softmax.w", embed, VOCAB)
    logits = rms_norm(x, w, "lm.final_ln") @ output
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    loss = weighted_loss(losses, weights)
    metrics = {}
    for k in range(1, depth + 1):
        # The rest of a row, whose tokens count in no loss, gets token 0.
        tokens = torch.zeros_like(labels)
        tokens[:, :SEQ - k + 1] = labels[:, k - 1:]
        name = f"lm.mtp.module{k}"
        both = torch.cat([rms_norm(x, w, f"{name}_hidden_norm"),
                          rms_norm(F.embedding(tokens, table), w, f"{name}_token_norm")], dim=-1)
        matrix = torch.cat([w(f"{name}_hidden", embed, embed), w(f"{name}_token", embed, embed)])
        x = llama_block(both @ matrix, batch, w, f"{name}_block", 2, 8)
        scores = torch.log_softmax(rms_norm(x, w, f"{name}_final_norm") @ output, dim=-1)
        total, count = 0.0, 0.0
        for row in range(BATCH):
            for i in range(SEQ - k):
                if segments[row, i] > 0 and segments[row, i + k] == segments[row, i]:
                    total -= scores[row, i, labels[row, i + k]] * weights[row, i + k]
                    count += weights[row, i + k]
        metrics[f"lm.mtp.mtp_log_pplx_{k}"] = total / count
        loss = loss + loss_weight / depth * total / weights.sum()
    return loss, metrics


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
    result = model(token_batch(), weights)
    loss, metrics = result if isinstance(result, tuple) else (result, {})
    loss.backward()
    lines = [f"# {model.__name__}: loss and gradients by tests/golden/models.py in float64",
             f"loss {loss.item():.15g}"]
    lines += [f"metric {name} {value.item():.15g}" for name, value in metrics.items()]
    for name, tensor in weights.table.items():
        lines.append(f"gradient {name} {tensor.numel()}")
        values = [f"{value:.7g}" for value in tensor.grad.flatten().tolist()]
        lines += [" ".join(values[i:i + 8]) for i in range(0, len(values), 8)]
    path = pathlib.Path(__file__).parent / f"{model.__name__}.txt"
    path.write_text("\n".join(lines) + "\n")
    print(f"{path}: loss {loss.item():.6f}, {len(weights.table)} gradients")


if __name__ == "__main__":
    for each in (gpt2, llama, pax, mtp):
        write_golden(each)
