#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/widths.txt: initial deviations, learning rates and decays that the package mup
(Microsoft, by the authors of "Tensor Programs V") gives the weights of a small model.

    python tests/golden/widths.py    (torch 2.15, mup 1.0.0)

Each line of a case is a weight of tests/tasks/task/mup_test.cc: its name, the deviation, and
learning rate and decay of MuAdamW and of MuSGD. mup multiplies the logits by 1/width and treats
their matrix as an input; the last line has what a matrix without that factor needs for equal steps.
"""
import pathlib
from unittest import mock

import mup
import torch
from torch import nn

DEVIATION, RATE, DECAY = 0.02, 0.01, 0.1
VOCAB = 11
# Name, sizes of (embed, heads · head_dim, mlp) in the model and in the base.
CASES = [
    ("wider", (64, 64, 192), (16, 16, 48)),
    ("narrower", (8, 8, 24), (16, 16, 48)),
    ("other_ratios", (32, 64, 96), (16, 16, 24)),
]


class Model(nn.Module):
    def __init__(self, embed, attention, mlp):
        super().__init__()
        self.table = nn.Embedding(VOCAB, embed)
        self.query = nn.Linear(embed, attention)
        self.output = nn.Linear(attention, embed, bias=False)
        self.scale = nn.LayerNorm(embed, bias=False)
        self.up = nn.Linear(embed, mlp)
        self.down = nn.Linear(mlp, embed, bias=False)
        self.logits = mup.MuReadout(embed, VOCAB, bias=False)


def deviations(model):
    """What mup.init.normal_ draws each weight with."""
    drawn = {}
    with mock.patch("mup.init._no_grad_normal_", lambda weight, mean, std: drawn.update(std=std)):
        for name, weight in model.named_parameters():
            if weight.dim() < 2:
                yield name, 0.0
                continue
            mup.init.normal_(weight, std=DEVIATION)
            yield name, drawn["std"]


def groups(model, optimizer):
    names = {id(weight): name for name, weight in model.named_parameters()}
    made = optimizer(model.parameters(), lr=RATE, weight_decay=DECAY)
    return {names[id(weight)]: (group["lr"], group["weight_decay"])
            for group in made.param_groups for weight in group["params"]}


def main():
    lines = [f"settings {DEVIATION} {RATE} {DECAY} {VOCAB}"]
    for name, sizes, base in CASES:
        model = Model(*sizes)
        mup.set_base_shapes(model, Model(*base), delta=Model(*(2 * size for size in base)))
        lines.append(f"case {name} " + " ".join(map(str, sizes + base)))
        adam, sgd = groups(model, mup.MuAdamW), groups(model, mup.MuSGD)
        for weight, deviation in deviations(model):
            rates = [*adam[weight], *sgd[weight]]
            if weight.startswith("logits"):  # Its factor c: c·w moves by c·rate or c²·rate.
                factor = 1 / model.logits.width_mult()
                deviation *= factor
                powers = (factor, 1 / factor, factor**2, 1 / factor**2)
                rates = [rate * power for rate, power in zip(rates, powers)]
            lines.append(" ".join([weight, *(f"{value:.12g}" for value in [deviation, *rates])]))
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


main()
