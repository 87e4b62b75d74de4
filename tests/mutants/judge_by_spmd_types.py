#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges mutants of a small block by spmd_types (github.com/meta-pytorch/spmd_types), and writes its
verdicts to tests/golden/spmd_types.txt, beside which tests/mutants/side_by_side_test.cc puts those
of Tessera.

The block is a feed-forward layer with a residual, FSDP over `data` and tensor parallelism over
`mdl`, and its loss. Nothing communicates: the process group is a fake one. Run once after a change:

  python3 -m venv VENV && VENV/bin/pip install torch numpy spmd_types==0.3.1
  VENV/bin/python tests/mutants/judge_by_spmd_types.py
"""

import importlib.metadata
import os
import pathlib
import sys

import torch
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh

import spmd_types as spmd
import spmd_types.checker
from spmd_types import I, P, R, S

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "spmd_types.txt"
BATCH, EMBED, MLP = 4, 8, 16

# The mutants by name; side_by_side_test.cc has the same ones.
MUTANTS = [
    "none",
    "delete gather",
    "double gather",
    "gather over mdl",
    "gather of another axis",
    "delete reduction",
    "double reduction",
    "reduction over data",
    "reduction before the product",
    "reduction after the square",
    "reduction of the residual",
    "scatter instead of the sum",
    "delete reduction of the loss",
    "double reduction of the loss",
    "loss over mdl",
    "enter without a conversion",
    "slice at another offset",
    "scale by 1/2",
]


def block(mutant, data, mdl):
    """Runs the block's forward and backward pass on this device's shards."""

    def tensor(shape, types, grad=False):
        value = torch.randn(*shape, requires_grad=grad)
        spmd.assert_type(value, types)
        return value

    def gathered(shard, dim):
        if mutant == "delete gather":
            return shard
        if mutant == "gather over mdl":
            return spmd.all_gather(shard, mdl, src=S(dim), dst=R)
        if mutant == "gather of another axis":
            return spmd.all_gather(shard, data, src=S(1 - dim), dst=R)
        whole = spmd.all_gather(shard, data, src=S(dim), dst=R)
        if mutant == "double gather":
            return spmd.all_gather(whole, data, src=S(dim), dst=R)
        return whole

    def summed(value):
        if mutant in ("delete reduction", "reduction before the product"):
            return value
        if mutant in ("reduction after the square", "reduction of the residual"):
            return value
        if mutant == "reduction over data":
            return spmd.all_reduce(value, data, src=P, dst=I)
        if mutant == "scatter instead of the sum":
            return spmd.reduce_scatter(value, mdl, src=P, dst=S(1))
        value = spmd.all_reduce(value, mdl, src=P, dst=I)
        if mutant == "double reduction":
            return spmd.all_reduce(value, mdl, src=P, dst=I)
        return value

    x = tensor((BATCH // 2, EMBED), {data: S(0), mdl: I}, grad=True)
    up = tensor((EMBED // 2, MLP // 2), {data: S(0), mdl: S(1)}, grad=True)
    down = tensor((MLP // 2, EMBED // 2), {data: S(1), mdl: S(0)}, grad=True)
    # Each device of mdl computes its columns from the whole rows of x.
    inner = x if mutant == "enter without a conversion" else spmd.convert(x, mdl, src=I, dst=R)
    weight = gathered(up, 0)
    if mutant == "slice at another offset":
        weight = torch.cat([weight[EMBED // 2 :], weight[: EMBED // 2]])
    hidden = torch.relu(inner @ weight)
    if mutant == "reduction before the product":
        hidden = spmd.all_reduce(hidden, mdl, src=P, dst=R)
    y = summed(hidden @ gathered(down, 1))
    if mutant == "scale by 1/2":
        y = y * 0.5
    residual = x
    if mutant == "reduction of the residual":
        residual = spmd.all_reduce(x, mdl, src=P, dst=I)
    square = torch.square(residual + y)
    if mutant == "reduction after the square":
        square = spmd.all_reduce(square, mdl, src=P, dst=I)
    loss = square.sum()
    if mutant == "loss over mdl":
        loss = spmd.all_reduce(loss, mdl, src=P, dst=I)
    elif mutant != "delete reduction of the loss":
        loss = spmd.all_reduce(loss, data, src=P, dst=I)
    if mutant == "double reduction of the loss":
        loss = spmd.all_reduce(loss, data, src=P, dst=I)
    # What leaves the block is the loss of all devices.
    spmd.assert_type(loss, {data: I, mdl: I})
    loss.backward()


def verdict(mutant, mesh, local):
    try:
        with spmd.set_current_mesh(mesh), spmd.checker.typecheck(local=local):
            block(mutant, mesh.get_group("data"), mesh.get_group("mdl"))
    except spmd.SpmdTypeError as error:
        return "refused", str(error)
    except RuntimeError as error:  # PyTorch's own: sizes that do not fit.
        return "sizes", str(error)
    return "accepted", ""


def main():
    os.environ.setdefault("MASTER_ADDR", "localhost")
    torch.distributed.init_process_group(backend="fake", rank=0, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "mdl"))
    version = importlib.metadata.version("spmd_types")
    lines = [f"# spmd_types {version}: mutant, global types, local types; by judge_by_spmd_types.py\n"]
    for mutant in MUTANTS:
        verdicts = []
        for local in (False, True):
            result, message = verdict(mutant, mesh, local)
            verdicts.append(result)
            if message and "-v" in sys.argv:
                print(f"{mutant}, {'local' if local else 'global'}: {message}\n")
        lines.append(f"{mutant}: {verdicts[0]}, {verdicts[1]}\n")
    GOLDEN.write_text("".join(lines))
    print("".join(lines), end="")


if __name__ == "__main__":
    main()
