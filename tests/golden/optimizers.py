#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/optimizers.txt: weights after 20 steps of optimizers in float64, by PyTorch,
pytorch_optimizer, schedulefree and sophia-opt.

    python tests/golden/optimizers.py    (torch 2.15, pytorch_optimizer 4.1.0, schedulefree 1.4.1,
                                          sophia-opt 0.2.2)

Weights, gradients and learning rates are formulas, which
tests/tasks/task/learner/optimizer_golden_test.cc also has.
"""
import pathlib

import torch
from pytorch_optimizer import Lamb, Lion, Shampoo
from pytorch_optimizer.optimizer import shampoo
from schedulefree.adamw_schedulefree_reference import AdamWScheduleFreeReference
from sophia_opt import SophiaG

STEPS = 20
RATE = 0.05
Lamb.clamp = 1.5  # Norms of the weights below are larger.
DAMPING = 1e-6  # Of Shampoo's statistics, relative to the largest row's sum of absolute values.
inverse_root = shampoo.compute_power_svd
shampoo.compute_power_svd = lambda matrix, power: inverse_root(damped(matrix), power)
SHAPES = [(), (5,), (3, 7), (2, 5, 3)]


def numbers(shape, seed):
    count = torch.Size(shape).numel()
    values = [((i * 37 + seed * 101 + 13) % 211 - 105) / 100 for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def rate(step):
    return RATE * (1 if step < 5 else 0.5 if step < 12 else 2)


def damped(matrix):
    return matrix + DAMPING * matrix.abs().sum(1).max() * torch.eye(len(matrix), dtype=matrix.dtype)


def plain_shampoo(shape):
    """Shampoo for each matrix of the last two axes, and AdamW for vectors and scalars."""
    if len(shape) < 2:
        return run(CASES["adamw"], shape)
    weight, count = numbers(shape, 0), len(shape[:-2])
    for i in range(shape[0] if count else 1):
        part = (lambda x: x[i]) if count else (lambda x: x)
        matrix = part(weight).clone().requires_grad_()
        optimizer = Shampoo([matrix], weight_decay=0.1, weight_decouple=True, matrix_eps=0.1)
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = rate(step)
            matrix.grad = part(numbers(shape, step + 1)).clone()
            optimizer.step()
        part(weight).copy_(matrix.detach())
    return [weight]


def averaging_shampoo(shape):
    """With averages of statistics and gradients, for sides of at most 5, and AdamW's RMS."""
    if len(shape) < 2:
        return run(CASES["adamw"], shape)
    weight = numbers(shape, 0).reshape(-1, *shape[-2:])
    for i, matrix in enumerate(weight):
        momentum, grams = torch.zeros_like(matrix), [0.0, 0.0]
        small = [side for side in range(2) if shape[-2:][side] <= 5]
        for step in range(STEPS):
            gradient = numbers(shape, step + 1).reshape(weight.shape)[i]
            momentum = 0.9 * momentum + 0.1 * gradient
            update = momentum
            for side in small:
                gram = gradient @ gradient.T if side == 0 else gradient.T @ gradient
                grams[side] = 0.8 * grams[side] + 0.2 * gram
                mean = grams[side] / (1 - 0.8**(step + 1)) + 0.1 * torch.eye(len(gram)).double()
                root = inverse_root(damped(mean), 2 * len(small))
                update = root @ update if side == 0 else update @ root
            update *= max(matrix.shape)**0.5 if len(small) == 1 else matrix.numel()**0.25
            update /= update.square().mean().sqrt().clamp(min=1)
            matrix -= rate(step) * (update + 0.1 * matrix)
    return [weight]


def debiased_lamb(weight, gradients, decay):
    """LAMB with bias correction, as in the fifth version of the paper."""
    m, v = torch.zeros_like(weight), torch.zeros_like(weight)
    for step, gradient in enumerate(gradients):
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient * gradient
        mean, variance = m / (1 - 0.9**(step + 1)), v / (1 - 0.999**(step + 1))
        update = mean / (variance.sqrt() + 1e-6) + decay * weight
        ratio = weight.norm() / (update.norm() + 1e-6) if weight.norm() > 0 else 1.0
        weight = weight - rate(step) * ratio * update
    return weight


def run(make, shape):
    """The weights after the steps, and the averages of schedulefree."""
    weight = numbers(shape, 0).requires_grad_()
    optimizer = make([weight])
    if hasattr(optimizer, "train"):
        optimizer.train()
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate(step)
        weight.grad = numbers(shape, step + 1)
        if isinstance(optimizer, SophiaG):
            optimizer.update_hessian()
            optimizer.step(bs=64)
        else:
            optimizer.step()
    state = optimizer.state[weight]
    return [weight.detach()] + ([state["x"]] if "x" in state else [])


CASES = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=0.1),
    "amsgrad": lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=0.1, betas=(0.9, 0.7),
                                           amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, nesterov=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=RATE, initial_accumulator_value=0.1),
    "rms_prop": lambda p: torch.optim.RMSprop(p, lr=RATE),
    "rms_prop_centered": lambda p: torch.optim.RMSprop(p, lr=RATE, alpha=0.9, momentum=0.8,
                                                       centered=True),
    "lion": lambda p: Lion(p, lr=RATE, weight_decay=0.1),
    "lamb": lambda p: Lamb(p, lr=RATE, weight_decay=0.1, weight_decouple=False, foreach=False,
                           adam_debias=True),  # The rate is not divided by 1 - beta1^t.
    "sophia": lambda p: SophiaG(p, lr=RATE, rho=0.1),
    "schedule_free": lambda p: AdamWScheduleFreeReference(p, lr=RATE, weight_decay=0.1),
    "schedule_free_powers": lambda p: AdamWScheduleFreeReference(p, lr=RATE, r=0.5,
                                                                 weight_lr_power=1.0),
}


def main():
    lines = []
    for shape in SHAPES:
        gradients = [numbers(shape, step + 1) for step in range(STEPS)]
        results = {name: run(make, shape) for name, make in CASES.items()}
        results["shampoo"] = plain_shampoo(shape)
        results["shampoo_averages"] = averaging_shampoo(shape)
        results["lamb_debiased"] = [debiased_lamb(numbers(shape, 0), gradients, 0.1)]
        for name, arrays in results.items():
            axes = " ".join(f"{axis}={size}" for axis, size in zip(("heads", "embed", "mlp"), shape))
            for what, array in zip(("weight", "average"), arrays):
                values = " ".join(repr(value) for value in array.reshape(-1).tolist())
                lines.append(f"{name} {what} [{axes}] {values}\n")
    (pathlib.Path(__file__).parent / "optimizers.txt").write_text("".join(lines))


main()
