# SPDX-License-Identifier: Apache-2.0
"""torch.optim.Muon, 20 steps on small weights: the reference of
tests/tasks/task/learner/muon_test.cc. `python3 tests/golden/muon.py` rewrites muon.txt beside it:
for each case the weight after the last step, with Newton-Schulz in float64 and in bfloat16, as
torch has it.

Weights are in Tessera's storage: named axes, some of them inputs, some outputs, the others numbers
of matrices. torch has a parameter (out, in) for each matrix. Weights and gradients are noise().
"""
import math
import pathlib

import torch
from torch.optim import _muon

from models import noise

STEPS, RATE, MOMENTUM = 20, 0.02, 0.95

QKV = "embed=5 qkv=3 heads=2 head_dim=3"
# Name, axes in storage, inputs, outputs, rule of the scale, Nesterov, weight decay.
CASES = [
    ("tall", "embed=9 mlp=4", "embed", "mlp", "original", True, 0.1),
    ("wide", "embed=4 mlp=9", "embed", "mlp", "original", True, 0.0),
    ("square", "embed=6 mlp=6", "embed", "mlp", "match_rms_adamw", False, 0.1),
    ("row", "embed=1 mlp=5", "embed", "mlp", "match_rms_adamw", True, 0.1),
    ("stack", "layers=3 mlp=7 embed=4", "mlp", "embed", "original", False, 0.0),
    ("fused", QKV, "embed", "heads head_dim", "match_rms_adamw", True, 0.1),
    ("fused_heads", QKV, "embed", "head_dim", "original", True, 0.1),
    ("output", "heads=2 head_dim=3 embed=5", "heads head_dim", "embed", "original", False, 0.1),
    ("experts", "layers=2 experts=2 embed=3 mlp=8", "embed", "mlp", "original", True, 0.1),
]


def newton_schulz_f64(grad, coefficients, steps, eps):
    """As _zeropower_via_newtonschulz, without its cast to bfloat16."""
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.size(0) > grad.size(1) else x


class Storage:
    """The matrices of a weight in storage."""

    def __init__(self, axes, inputs, outputs):
        sizes = {name: int(size) for name, size in (axis.split("=") for axis in axes.split())}
        self.shape = list(sizes.values())
        names = list(sizes)
        ins, outs = inputs.split(), outputs.split()
        numbers = [name for name in names if name not in ins + outs]
        self.order = [names.index(name) for name in numbers + outs + ins]
        count = lambda group: math.prod(sizes[name] for name in group)
        self.matrices = (count(numbers), count(outs), count(ins))

    def split(self, values):
        whole = torch.tensor(values).reshape(self.shape).permute(self.order)
        return list(whole.reshape(self.matrices))

    def join(self, matrices):
        permuted = torch.stack(matrices).reshape([self.shape[i] for i in self.order])
        return permuted.permute([self.order.index(i) for i in range(len(self.order))]).flatten()


def trained(case):
    name, axes, inputs, outputs, scale, nesterov, decay = case
    storage = Storage(axes, inputs, outputs)
    count = math.prod(storage.shape)
    weights = [torch.nn.Parameter(each.clone()) for each in storage.split(noise(name, count))]
    settings = {"weight_decay": decay, "nesterov": nesterov, "adjust_lr_fn": scale}
    muon = torch.optim.Muon(weights, lr=RATE, momentum=MOMENTUM, **settings)
    for step in range(STEPS):
        for weight, grad in zip(weights, storage.split(noise(f"{name} {step}", count))):
            weight.grad = grad.clone()
        muon.step()
    return storage.join([weight.detach() for weight in weights]).tolist()


def lines_of(case, in_bf16, in_f64):
    name, axes, inputs, outputs, scale, nesterov, decay = case
    yield from (f"case {name}", f"axes {axes}", f"in {inputs}", f"out {outputs}")
    yield f"settings {scale} {int(nesterov)} {decay}"
    for label, values in (("bf16", in_bf16), ("f64", in_f64)):
        digits = ".17g" if label == "f64" else ".7g"
        yield f"{label} {len(values)}"
        for i in range(0, len(values), 8):
            yield " ".join(format(value, digits) for value in values[i : i + 8])


def main():
    in_bf16 = [trained(case) for case in CASES]
    _muon._zeropower_via_newtonschulz = newton_schulz_f64
    in_f64 = [trained(case) for case in CASES]
    lines = [f"# muon: torch {torch.__version__}, by tests/golden/muon.py"]
    lines += [f"steps {STEPS}", f"rate {RATE}", f"momentum {MOMENTUM}"]
    for case, narrow, wide in zip(CASES, in_bf16, in_f64):
        lines += lines_of(case, narrow, wide)
    path = pathlib.Path(__file__).with_name("muon.txt")
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
