#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/parallel_*.svg: what each of four devices holds, and what moves between."""
import pathlib

HUES = ["#3b6fd4", "#d97a1e", "#3f9a4b", "#9a4fb5"]
FONT = 'font-family="DejaVu Sans, Helvetica, Arial, sans-serif"'
WIDTH, HEIGHT = 84, 46  # Of a tensor.
GAP, LEFT, TOP, STEP = 96, 116, 58, 64

WHOLE = lambda d: (0, 1, 0, 1)


def quarter_down(d):
    return (d / 4, (d + 1) / 4, 0, 1)


def quarter_across(d):
    return (0, 1, d / 4, (d + 1) / 4)


def keys_of_step(step):
    return lambda d: quarter_across((d - step) % 4)


def row(d):
    return d // 2


def column(d):
    return d % 2


# Each column: title, axes (down × across), and the part that device d holds. Each arrow between
# columns: what the forward pass does, and what the backward pass does.
WEIGHT, RESIDUAL, INSIDE = ("weight, at rest", "embed × mlp"), ("residual", "batch × seq"), (
    "inside a layer", "batch × mlp")
USED = ("weight, in use", "embed × mlp")
STRATEGIES = {
    "replicas": ([(*WEIGHT, WHOLE), (*USED, WHOLE), (*RESIDUAL, quarter_down),
                  (*INSIDE, quarter_down)],
                 [("", "all-reduce"), None, ("", "")], "data"),
    "fsdp": ([(*WEIGHT, quarter_down), (*USED, WHOLE), (*RESIDUAL, quarter_down),
              (*INSIDE, quarter_down)],
             [("all-gather", "reduce-scatter"), None, ("", "")], "data"),
    "tensor": ([(*WEIGHT, quarter_across), (*USED, quarter_across), (*RESIDUAL, WHOLE),
                (*INSIDE, quarter_across), (*RESIDUAL, WHOLE)],
               [("", ""), None, ("", "all-reduce"), ("all-reduce", "")], "mdl"),
    "sequence": ([(*WEIGHT, quarter_across), (*USED, quarter_across), (*RESIDUAL, quarter_across),
                  (*INSIDE, quarter_across), (*RESIDUAL, quarter_across)],
                 [("", ""), None, ("all-gather", "reduce-scatter"),
                  ("reduce-scatter", "all-gather")], "mdl"),
    "vocabulary": ([("table", "vocab × embed", quarter_down), ("residual", "batch × embed", WHOLE),
                    ("logits", "batch × vocab", quarter_across), ("loss", "batch", WHOLE)],
                   [("all-reduce", ""), ("", "all-reduce"), ("max, sums", "")], "mdl"),
    "context": ([(*RESIDUAL, quarter_across), ("q, k, v", "heads × seq", quarter_across),
                 ("in attention", "heads × seq", quarter_down),
                 ("result", "heads × seq", quarter_across), (*RESIDUAL, quarter_across)],
                [("", ""), ("all-to-all", "all-to-all"), ("all-to-all", "all-to-all"), ("", "")],
                "ctx"),
    "ring": ([("queries", "heads × seq", quarter_across),
              *((f"keys, step {step}", "heads × seq", keys_of_step(step)) for step in range(4))],
             [None, *[("permute", "permute")] * 3], "ctx"),
    "product": ([(*WEIGHT, lambda d: (row(d) / 2, row(d) / 2 + .5, column(d) / 2,
                                      column(d) / 2 + .5)),
                 (*USED, lambda d: (0, 1, column(d) / 2, column(d) / 2 + .5)),
                 (*RESIDUAL, lambda d: (row(d) / 2, row(d) / 2 + .5, 0, 1)),
                 (*INSIDE, lambda d: (row(d) / 2, row(d) / 2 + .5, column(d) / 2,
                                      column(d) / 2 + .5)),
                 (*RESIDUAL, lambda d: (row(d) / 2, row(d) / 2 + .5, 0, 1))],
                [("all-gather, data", "reduce-scatter"), None, ("", "all-reduce, mdl"),
                 ("all-reduce, mdl", "")], None),
}


def text(x, y, words, size=11, colour="#33333b", anchor="middle", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" '
            f'text-anchor="{anchor}" font-weight="{weight}">{words}</text>')


def tensor(x, y, part, hue):
    top, bottom, left, right = part
    return (f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" fill="#f4f4f7" '
            f'stroke="#c4c4ce"/>'
            f'<rect x="{x + left * WIDTH:.1f}" y="{y + top * HEIGHT:.1f}" '
            f'width="{(right - left) * WIDTH:.1f}" height="{(bottom - top) * HEIGHT:.1f}" '
            f'fill="{hue}" fill-opacity="0.75"/>')


def arrow(x, y, forward, backward):
    """From x to the next column, in the middle of its height."""
    end = x + GAP - 8
    lines = [f'<path d="M{x + 8:.1f},{y:.1f} H{end - 5:.1f}" stroke="#77778a" fill="none"/>'
             f'<path d="M{end:.1f},{y:.1f} l-7,-3.5 v7 z" fill="#77778a"/>']
    middle = x + GAP / 2
    if forward:
        lines.append(text(middle, y - 6, forward, 10, "#b3243a", weight="bold"))
    if backward:
        lines.append(text(middle, y + 15, backward, 10, "#b3243a"))
        lines.append(text(middle, y + 27, "backward", 8, "#77778a"))
    return "".join(lines)


def drawing(columns, arrows, mesh_axis):
    width = LEFT + len(columns) * WIDTH + (len(columns) - 1) * GAP + 16
    height = TOP + 4 * STEP + 4
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             f'viewBox="0 0 {width} {height}" {FONT}>'
             f'<rect width="100%" height="100%" fill="#ffffff"/>']
    for i, (title, axes, part) in enumerate(columns):
        x = LEFT + i * (WIDTH + GAP)
        parts.append(text(x + WIDTH / 2, 22, title, 12, weight="bold"))
        parts.append(text(x + WIDTH / 2, 38, axes, 10, "#55555f"))
        for device in range(4):
            parts.append(tensor(x, TOP + device * STEP, part(device), HUES[device]))
    for i, arrow_words in enumerate(arrows):
        if arrow_words is None:
            continue
        x = LEFT + i * (WIDTH + GAP) + WIDTH
        parts.append(arrow(x, TOP + 2 * STEP - (STEP - HEIGHT) / 2, *arrow_words))
    for device in range(4):
        name = f"{mesh_axis} {device}" if mesh_axis else f"data {row(device)}, mdl {column(device)}"
        parts.append(text(LEFT - 12, TOP + device * STEP + HEIGHT / 2 + 4, name, 11,
                          HUES[device], "end", "bold"))
    return "".join(parts) + "</svg>\n"


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent
    for name, (columns, arrows, mesh_axis) in STRATEGIES.items():
        (folder / f"parallel_{name}.svg").write_text(drawing(columns, arrows, mesh_axis))
